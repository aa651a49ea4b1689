import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import * as api from "../api";
import { classLook, map, openNode, problem, said } from "../state";
import type { NodeRef } from "../types";
import { Icon } from "./Icons";
import { Swatch } from "./Swatch";

const WAIT_MS = 120;

interface Found {
  query: string;
  nodes: NodeRef[];
  error: string;
}

/** A combobox: suggestions by id, arrows and Enter to choose. */
export function Search(): JSX.Element {
  const [query, setQuery] = useState("");
  const [open, setOpen] = useState(false);
  const [active, setActive] = useState(0);
  const found = useSuggestions(query.trim());
  const root = useRef<HTMLDivElement>(null);
  useEffect(() => setActive(0), [found]);

  const choose = (node: NodeRef): void => {
    setQuery("");
    setOpen(false);
    void openNode(String(node.id));
    document.getElementById("map")?.focus({ preventScroll: true });
  };
  const onKey = (event: KeyboardEvent): void => {
    const nodes = found?.nodes ?? [];
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setOpen(true);
      if (nodes.length) setActive((active + (event.key === "ArrowDown" ? 1 : nodes.length - 1)) % nodes.length);
    } else if (event.key === "Enter" && query.trim()) {
      event.preventDefault();
      if (found?.query === query.trim() && nodes[active]) choose(nodes[active]);
      else if (!found?.nodes.length || found.query !== query.trim()) choose({ id: query.trim() });
    } else if (event.key === "Escape") {
      if (!open && !query) return;
      event.preventDefault();
      setOpen(false);
      setQuery("");
    }
  };
  const shown = open && query.trim() !== "" && found !== null;
  return (
    <div class="search" ref={root} role="search" onFocusOut={(event) => !root.current?.contains(event.relatedTarget as Node) && setOpen(false)}>
      <Icon name="search" size={17} />
      <input
        id="search" type="text" role="combobox" autocomplete="off" spellcheck={false} placeholder="Find a node" disabled={!map.value}
        aria-label="Find a node by id" aria-autocomplete="list" aria-expanded={shown} aria-controls="suggestions"
        aria-activedescendant={shown && found.nodes.length ? `suggestion-${active}` : undefined}
        value={query} onFocus={() => setOpen(true)} onKeyDown={onKey}
        onInput={(event) => { setQuery(event.currentTarget.value); setOpen(true); }}
      />
      <kbd class="wide" aria-hidden="true">/</kbd>
      <ul id="suggestions" role="listbox" aria-label="Nodes" hidden={!shown}>
        {found?.nodes.map((node, i) => (
          <li id={`suggestion-${i}`} key={node.id} role="option" aria-selected={i === active} onPointerMove={() => setActive(i)} onPointerDown={(event) => { event.preventDefault(); choose(node); }}>
            <Swatch look={classLook(node.class ?? null)} size={11} />
            <span class="grow"><Marked text={String(node.id)} part={found.query} /></span>
            {node.class ? <small>{node.class}</small> : null}
          </li>
        ))}
        {found && !found.nodes.length ? <li class="none" role="option" aria-disabled="true" aria-selected="false">{found.error || `No node’s id contains “${found.query}”.`}</li> : null}
      </ul>
    </div>
  );
}

function Marked({ text, part }: { text: string; part: string }): JSX.Element {
  const at = text.toLowerCase().indexOf(part.toLowerCase());
  if (at < 0) return <>{text}</>;
  return <>{text.slice(0, at)}<mark>{text.slice(at, at + part.length)}</mark>{text.slice(at + part.length)}</>;
}

function useSuggestions(query: string): Found | null {
  const [found, setFound] = useState<Found | null>(null);
  useEffect(() => {
    if (!query) {
      setFound(null);
      return;
    }
    const stop = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const nodes = await api.search(query, stop.signal);
        setFound({ query, nodes, error: "" });
        said.value = nodes.length ? `${nodes.length} suggestions.` : "No node found.";
      } catch (error) {
        if (!stop.signal.aborted) setFound({ query, nodes: [], error: problem(error, "The search failed").text });
      }
    }, WAIT_MS);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [query]);
  return found;
}
