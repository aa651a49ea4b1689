"""
Coordinates for points that have no edges
=========================================

Points on a circle, each joined to its nearest neighbours. The Laplacian eigenfunctions of a circle are known:
pairs of a sine and a cosine of growing frequency. The map is fitted on 600 points with their edges; 200
others arrive with features only. Ten of the twelve features are noise.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.neighbors import kneighbors_graph

from gsparc import Graph, SpectralMap

# %%
# The features: position on the circle, and ten columns of noise that say nothing.

rng = np.random.default_rng(0)
angle = rng.uniform(0, 2 * np.pi, 800)
circle = np.column_stack([np.cos(angle), np.sin(angle)])
X = np.hstack([circle, 0.1 * rng.standard_normal((800, 10))])
seen, new = np.arange(600), np.arange(600, 800)

# %%
# The graph knows the seen points only.

graph = Graph.from_scipy(kneighbors_graph(circle[seen], n_neighbors=30))
model = SpectralMap(n_components=4, random_state=0).fit(X[seen], graph=graph)
Z = model.transform(X[new])

# %%
# Four components of the new points against their true angle: two waves of frequency one, two of frequency
# two.

order = np.argsort(angle[new])
figure, axis = plt.subplots(figsize=(7, 3.5))
for component in range(4):
    label = f"component {component + 1}, eigenvalue {model.eigenvalues_[component]:.3f}"
    axis.plot(angle[new][order], Z[order, component], marker=".", label=label)
axis.set_xlabel("angle of a point without edges")
axis.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, 1.25), ncols=2)
figure.tight_layout()
