import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { classLook, coverage, type Landed, openNode } from "../state";
import type { Prediction } from "../types";
import { Icon } from "./Icons";
import { Swatch } from "./Swatch";

export function Result({ landed, busy }: { landed: Landed; busy: boolean }): JSX.Element {
  const { prediction } = landed;
  const top = useRef<HTMLElement>(null);
  useEffect(() => {
    top.current?.scrollIntoView({ block: "nearest", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  }, [landed.run]);
  return (
    <section class="result" ref={top} key={landed.run} aria-label="Prediction" aria-busy={busy} data-abstained={prediction.abstained ? "" : undefined}>
      {prediction.abstained ? <Abstained prediction={prediction} /> : null}
      {landed.ignored ? <p class="hint">{landed.ignored === 1 ? "One of the known neighbours is" : `${landed.ignored} of the known neighbours are`} not in this model and did not count.</p> : null}
      <Headline prediction={prediction} />
      <ClassSet prediction={prediction} />
      <Bars prediction={prediction} />
      <Links prediction={prediction} />
      <Near prediction={prediction} />
    </section>
  );
}

function Abstained({ prediction }: { prediction: Prediction }): JSX.Element {
  return (
    <div class="notice" role="note">
      <Icon name="warn" />
      <div>
        <strong>The model would rather not answer</strong>
        <p>{reason(prediction.why)} What follows is its best guess; do not rely on it.</p>
      </div>
    </div>
  );
}

function reason(why: string): string {
  if (!why) return "It is not sure enough.";
  return `Why: ${why}${/[.!?]$/.test(why) ? "" : "."}`;
}

function Headline({ prediction }: { prediction: Prediction }): JSX.Element | null {
  if (prediction.class === null || prediction.class === undefined)
    return prediction.cluster === null || prediction.cluster === undefined ? null : <p class="headline"><span>Cluster</span><strong>{prediction.cluster}</strong></p>;
  return (
    <div class="headline">
      <span>{prediction.abstained ? "Best guess" : "Predicted class"}</span>
      <strong><Swatch look={classLook(prediction.class)} size={16} />{prediction.class}</strong>
      {prediction.confidence !== null ? <em>{percent(prediction.confidence)}{prediction.abstained ? "" : " sure"}</em> : null}
      {prediction.cluster !== null && prediction.cluster !== undefined ? <small>cluster {prediction.cluster}</small> : null}
    </div>
  );
}

const MANY = 10; // a set of that many says "I do not know"; the rest is one click away

function ClassSet({ prediction }: { prediction: Prediction }): JSX.Element | null {
  const [all, setAll] = useState(false);
  const names = prediction.set ?? [];
  if (!names.length) return null;
  const share = Math.round(coverage.peek() * 100);
  const shown = all || names.length <= MANY ? names : names.slice(0, MANY);
  return (
    <section>
      <h3>Prediction set</h3>
      <ul class="chips">
        {shown.map((name) => <li key={name}><span class="chip still"><Swatch look={classLook(name)} size={10} />{name}</span></li>)}
        {shown.length < names.length ? <li><button type="button" class="text-button" onClick={() => setAll(true)}>and {names.length - shown.length} more</button></li> : null}
      </ul>
      <p class="hint">Such a set holds the true class {share} times of 100.</p>
    </section>
  );
}

function Bars({ prediction }: { prediction: Prediction }): JSX.Element | null {
  const rows = Object.entries(prediction.probabilities ?? {}).sort((a, b) => b[1] - a[1]).slice(0, 10);
  if (!rows.length) return null;
  const inSet = new Set(prediction.set ?? []);
  return (
    <table class="bars">
      <caption>Class probabilities</caption>
      <colgroup><col class="col-name" /><col /><col class="col-figure" /></colgroup>
      <thead><tr class="folded"><th scope="col">Class</th><td /><th scope="col">Probability</th></tr></thead>
      <tbody>
        {rows.map(([name, share]) => (
          <tr key={name} data-in={inSet.has(name) ? "" : undefined}>
            <th scope="row" title={name}>{name}{inSet.has(name) ? <span class="sr-only"> (in the prediction set)</span> : null}</th>
            <td class="bar"><i style={{ width: `${Math.max(0.5, share * 100)}%`, background: classLook(name).colour }} aria-hidden="true" /></td>
            <td class="figure">{percent(share)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Links({ prediction }: { prediction: Prediction }): JSX.Element | null {
  if (!prediction.links?.length) return null;
  return (
    <table class="list">
      <caption><span class="mark-line dashed" aria-hidden="true" />Suggested links</caption>
      <thead><tr><th scope="col">Node</th><th scope="col" class="figure">Score</th></tr></thead>
      <tbody>
        {prediction.links.map((link) => (
          <tr key={link.id}>
            <td><button type="button" class="link" onClick={() => void openNode(String(link.id))}>{link.id}</button></td>
            <td class="figure">{figure(link.score)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Near({ prediction }: { prediction: Prediction }): JSX.Element | null {
  if (!prediction.near?.length) return null;
  return (
    <table class="list">
      <caption><span class="mark-line" aria-hidden="true" />Inferred neighbours</caption>
      <thead><tr><th scope="col">Node</th><th scope="col">Class</th><th scope="col" class="figure">Distance</th></tr></thead>
      <tbody>
        {prediction.near.map((node) => (
          <tr key={node.id}>
            <td><button type="button" class="link" onClick={() => void openNode(String(node.id))}>{node.id}</button></td>
            <td>{node.class ? <span class="with-swatch"><Swatch look={classLook(node.class)} size={10} />{node.class}</span> : "–"}</td>
            <td class="figure">{figure(node.distance ?? null)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function percent(share: number): string {
  const value = share * 100;
  return value > 0 && value < 1 ? "< 1 %" : value > 99 && value < 100 ? "> 99 %" : `${Math.round(value)} %`;
}

function figure(value: number | null): string {
  if (value === null) return "–";
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3);
}
