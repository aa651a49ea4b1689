import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { card, cardBusy, cardProblem, classLook, closeNode, near, openNode, pointed } from "../state";
import type { NodeRef } from "../types";
import { Icon } from "./Icons";
import { ProblemBox } from "./Problem";
import { Swatch } from "./Swatch";

export function NodePanel(): JSX.Element {
  const node = card.value;
  if (cardProblem.value) return <ProblemBox problem={cardProblem.value} />;
  if (!node)
    return cardBusy.value ? <p class="hint" role="status">Opening the node…</p> : (
      <div class="empty">
        <h2>No node open</h2>
        <p>Click a dot on the map, or search for an id with <kbd>/</kbd>.</p>
      </div>
    );
  return (
    <article class="card" aria-busy={cardBusy.value}>
      <header>
        <h2>{node.id}</h2>
        <button type="button" class="tool small" aria-label="Close the card" title="Close (Esc)" onClick={closeNode}><Icon name="close" size={16} /></button>
      </header>
      <dl class="facts">
        {node.class !== null ? <div><dt>Class</dt><dd><Swatch look={classLook(node.class)} />{node.class}</dd></div> : null}
        {node.cluster !== null ? <div><dt>Cluster</dt><dd>{node.cluster}</dd></div> : null}
        {node.degree !== undefined ? <div><dt>Known neighbours</dt><dd>{node.degree.toLocaleString("en")}</dd></div> : null}
      </dl>
      {node.neighbours ? <NodeList title="Linked to" key={node.id} nodes={node.neighbours} total={node.degree} none="This node has no edges." /> : null}
      {near.value ? <NodeList title={node.near ? "Nearest in the eigenspace" : "Nearest on the map"} nodes={near.value} none="Nothing else is near." /> : null}
    </article>
  );
}

const FEW = 12;

function NodeList({ title, nodes, total, none }: { title: string; nodes: NodeRef[]; total?: number; none: string }): JSX.Element {
  const [all, setAll] = useState(false);
  const shown = all ? nodes : nodes.slice(0, FEW);
  const beyond = (total ?? nodes.length) - nodes.length;
  const point = (index: number | null | undefined): void => void (pointed.value = index ?? null);
  return (
    <section>
      <h3>{title}{beyond > 0 ? <small>the first {nodes.length} of {total!.toLocaleString("en")}</small> : null}</h3>
      {nodes.length ? (
        <ul class="chips">
          {shown.map((node) => (
            <li key={node.id}><button type="button" class="chip" onPointerEnter={() => point(node.index)} onPointerLeave={() => point(null)} onFocus={() => point(node.index)} onBlur={() => point(null)} onClick={() => void openNode(String(node.id))}>{node.class !== undefined ? <Swatch look={classLook(node.class)} size={10} /> : null}{node.id}</button></li>
          ))}
        </ul>
      ) : <p class="hint">{none}</p>}
      {nodes.length > FEW && !all ? <button type="button" class="text-button" onClick={() => setAll(true)}>Show all {nodes.length}</button> : null}
    </section>
  );
}
