import type { JSX } from "preact";
import { currentHash, info, map, themeChoice, type ThemeChoice, toast } from "../state";
import mark from "../assets/mark.svg";
import { Icon } from "./Icons";
import { Search } from "./Search";

const NEXT: Record<ThemeChoice, ThemeChoice> = { auto: "light", light: "dark", dark: "auto" };
const THEME_ICON = { auto: "auto", light: "sun", dark: "moon" } as const;
const THEME_NAME = { auto: "as the system", light: "light", dark: "dark" } as const;

export function Header({ onHelp }: { onHelp: () => void }): JSX.Element {
  const about = info.value;
  const count = map.value?.count ?? about?.counts.nodes;
  return (
    <header class="topbar">
      <div class="brand">
        <img src={mark} alt="" width="28" height="28" />
        <div>
          <h1>{about?.name ?? "gsparc"}</h1>
          <p>{about && count !== undefined ? <>{number(count)} nodes<span class="wide"> · {number(about.counts.edges)} edges</span></> : "explorer"}</p>
        </div>
      </div>
      <Search />
      <nav class="tools" aria-label="Page">
        <button type="button" class="tool" onClick={() => void share()} aria-label="Copy a link to this view" title="Copy a link to this view">
          <Icon name="link" /><span class="wide">Share</span>
        </button>
        <button type="button" class="tool" onClick={() => (themeChoice.value = NEXT[themeChoice.value])} aria-label={`Colours: ${THEME_NAME[themeChoice.value]}. Change`} title={`Colours: ${THEME_NAME[themeChoice.value]}`}>
          <Icon name={THEME_ICON[themeChoice.value]} />
        </button>
        <button type="button" class="tool wide" onClick={onHelp} aria-label="Keyboard help" title="Keyboard help (?)">
          <Icon name="keys" />
        </button>
        <a class="tool wide" href="docs">API</a>
      </nav>
    </header>
  );
}

const number = (value: number): string => value.toLocaleString("en");

async function share(): Promise<void> {
  const link = location.href.split("#")[0] + currentHash();
  try {
    await navigator.clipboard.writeText(link);
    toast.value = "Link copied.";
  } catch {
    toast.value = "The link is in the address bar."; // the clipboard needs https or loopback
    history.replaceState(null, "", currentHash() || location.pathname);
  }
}
