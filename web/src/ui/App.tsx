import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { card, closeNode, failure, load, loading, map, panel, said, toast } from "../state";
import { Header } from "./Header";
import { HelpDialog } from "./Help";
import { MapView } from "./MapView";
import { NewNode } from "./NewNode";
import { NodePanel } from "./NodePanel";
import { ProblemBox } from "./Problem";
import { TokenDialog } from "./TokenDialog";

export function App(): JSX.Element {
  const help = useRef<HTMLDialogElement>(null);
  useShortcuts(() => help.current?.showModal());
  return (
    <>
      <a class="skip" href="#new-node" onClick={toForm}>Skip to “Type a new node”</a>
      <Header onHelp={() => help.current?.showModal()} />
      <main class="stage">
        <section class="map-area" aria-label="Map">
          {failure.value ? (
            <div class="centre">
              <ProblemBox problem={failure.value} retry={() => void load()} large />
            </div>
          ) : loading.value || !map.value ? (
            <Loading />
          ) : map.value.count === 0 ? (
            <div class="centre">
              <div class="empty">
                <h2>No nodes yet</h2>
                <p>This model has not seen a node. Let some join with <code>gsparc grow</code>, then load this page again.</p>
              </div>
            </div>
          ) : (
            <MapView key={map.value.version} />
          )}
        </section>
        <aside class="side" aria-label="Details">
          <Tabs />
          <div class="side-body" id="side-body" role="tabpanel" aria-labelledby={`tab-${panel.value}`}>
            {panel.value === "new" ? <NewNode /> : <NodePanel />}
          </div>
        </aside>
      </main>
      <Toast />
      <div class="sr-only" role="status" aria-live="polite">{said.value}</div>
      <TokenDialog />
      <HelpDialog dialog={help} />
    </>
  );
}

function toForm(event: Event): void {
  event.preventDefault(); // the hash holds the shared state
  panel.value = "new";
  requestAnimationFrame(() => document.querySelector<HTMLElement>("#new-node textarea, #new-node input, #new-node select")?.focus());
}

function Loading(): JSX.Element {
  return (
    <div class="centre" role="status">
      <div class="loading">
        <span class="orbit" aria-hidden="true"><i /><i /><i /></span>
        <p>Loading the map…</p>
      </div>
    </div>
  );
}

function Tabs(): JSX.Element {
  const tabs = [["new", "Type a new node"], ["node", "Known node"]] as const;
  const choose = (event: KeyboardEvent): void => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    panel.value = panel.value === "new" ? "node" : "new";
    document.getElementById(`tab-${panel.value}`)?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label="Details" onKeyDown={choose}>
      {tabs.map(([key, label]) => (
        <button type="button" role="tab" id={`tab-${key}`} key={key} aria-selected={panel.value === key} aria-controls="side-body" tabIndex={panel.value === key ? 0 : -1} onClick={() => (panel.value = key)}>
          {key === "node" && card.value ? `Node: ${card.value.id}` : label}
        </button>
      ))}
    </div>
  );
}

function Toast(): JSX.Element | null {
  useEffect(() => {
    if (!toast.value) return;
    const timer = setTimeout(() => (toast.value = ""), 3200);
    return () => clearTimeout(timer);
  }, [toast.value]);
  return <div class="toast" data-open={toast.value ? "" : undefined} role="status">{toast.value}</div>;
}

/** "/" searches, "n" types a new node, "?" helps, Escape closes the card. */
function useShortcuts(openHelp: () => void): void {
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
      const target = event.target as HTMLElement;
      const writing = target.matches("input, textarea, select, [contenteditable]") || target.closest("dialog");
      if (event.key === "Escape" && !target.closest("dialog")) {
        if (writing) target.blur();
        else closeNode();
      } else if (!writing && event.key === "/") {
        event.preventDefault();
        document.getElementById("search")?.focus();
      } else if (!writing && event.key === "n") toForm(event);
      else if (!writing && event.key === "?") openHelp();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}
