import { render } from "preact";
import "./styles/tokens.css";
import "./styles/app.css";
import "./styles/panels.css";
import { load } from "./state";
import { App } from "./ui/App";

render(<App />, document.getElementById("app")!);
void load();
