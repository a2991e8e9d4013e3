import { render } from "preact";
import { App } from "./app";
import { start } from "./live/feed";
import { apply } from "./live/theme";
import "./style/page.css";

apply();
render(<App />, document.getElementById("app") as HTMLElement);
void start();
