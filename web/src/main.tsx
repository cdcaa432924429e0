import "./style.css";
import { render } from "preact";
import { App } from "./app";
import { constructStyles } from "./strict";
import { applyTheme } from "./theme";

constructStyles();
applyTheme();
const root = document.getElementById("app")!;
root.replaceChildren();
render(<App />, root);
