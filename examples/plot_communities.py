"""
When only the edges know the class
==================================

The features say in which of 200 blobs a node lies. Which blobs form a class is said by the edges alone: blobs of one
class lie anywhere. Five labels a class are known, twenty nodes of 2,250. The new nodes have no edges.

Three answers for them: an MLP on the features, a transformer over means of near nodes in the eigenspace
(``backbone="phormer"``), and an ordinary ``GCN`` of torch_geometric, attached to inferred neighbours.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch_geometric.nn import GCN

from gsparc import ColdStartSplit, SparcClassifier, SpectralMap
from gsparc.baselines import MLPBaseline
from gsparc.datasets import communities_of_blobs

# %%
# The data: cold nodes are taken out together with their edges, and all but five labels a class are hidden.

data = communities_of_blobs(random_state=0)
fold = next(iter(ColdStartSplit("dense", random_state=0).split(data.X, data.y)))
X, y, graph = data.X[fold.seen], data.y[fold.seen], data.graph[fold.seen]
X_new, y_new = data.X[fold.cold], data.y[fold.cold]

rng = np.random.default_rng(0)
labels = np.full(len(y), -1)  # -1: unlabelled
for name in np.unique(y):
    known = rng.choice(np.flatnonzero(y == name), 5, replace=False)
    labels[known] = name

# %%
# Four communities are three functions on the graph besides the constant one, so three coordinates will do.

spectral = SpectralMap(3, hidden_channels=(256,), batch_size=1024, max_steps=200, learning_rate=1e-2)
torch.manual_seed(0)
gcn = GCN(data.X.shape[1], 32, num_layers=2, out_channels=4)
models = {
    "MLP on features": MLPBaseline(max_steps=100, random_state=0),
    "phormer": SparcClassifier("phormer", spectral_map=spectral, num_tokens=6, max_steps=30, random_state=0),
    "GCN, attached": SparcClassifier(gcn, spectral_map=spectral, max_steps=40, random_state=0),
}
right = {}
for name, model in models.items():
    edges = {} if name == "MLP on features" else {"graph": graph}
    right[name] = model.fit(X, labels, **edges).score(X_new, y_new)
    print(f"{name}: {100 * right[name]:.1f} % of {len(X_new)} nodes without edges")

# %%
# The MLP knows the blobs that it has a label of, and guesses the others. The other two saw which blobs are joined.
#
# A prediction can be traced: these seen nodes are behind that of the first new node, nearest first. Most have no label
# of their own; the teachers gave them one.

evidence = models["phormer"].evidence(X_new[:1], k=5)
print("class", y_new[0], "- true classes of its evidence:", y[evidence.ids[0]])

# %%
# New nodes by two directions of their features, and by two coordinates that the map gave them, coloured by class.

flat = (X_new - X_new.mean(axis=0)) @ np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:2].T
coordinates = models["phormer"].map_.transform(X_new)
figure, (left, middle, last) = plt.subplots(1, 3, figsize=(11, 3.6))
left.scatter(*flat.T, c=y_new, s=6, cmap="tab10")
left.set_title("features")
middle.scatter(coordinates[:, 0], coordinates[:, 1], c=y_new, s=6, cmap="tab10")
middle.set_title("spectral coordinates")
last.barh(list(right), [100 * share for share in right.values()])
last.set_title("right, %")
last.set_xlim(0, 100)
figure.tight_layout()
