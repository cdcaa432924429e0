import "./style.css";
import { render } from "preact";
import { App } from "./app";
import { applyTheme } from "./theme";

applyTheme();
const root = document.getElementById("app")!;
root.replaceChildren();
render(<App />, root);
