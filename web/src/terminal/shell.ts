import "@xterm/xterm/css/xterm.css";
import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import { key } from "../key";
import { variable } from "../theme";

type ServerMessage =
  | { type: "ready" | "closed" }
  | { type: "output"; data: string }
  | { type: "error"; error: string }
  | { type: "exit"; code: number };

const AGAIN_LEAST = 500;
const AGAIN_MOST = 10_000;
/** The server refuses larger messages (64 KiB); a character has at most three bytes for each unit. */
const PIECE = 16_000;

/** A terminal and its connection, which is opened again when it breaks. */
export class Shell {
  private readonly terminal: Terminal;
  private readonly fit = new FitAddon();
  private readonly sizes: ResizeObserver;
  private socket?: WebSocket;
  private pause = AGAIN_LEAST;
  private timer = 0;
  private state: "open" | "ended" | "lost" | "disposed" = "lost";

  constructor(
    box: HTMLElement,
    private readonly path: string,
    label: string,
    private readonly tell: (state: string) => void,
  ) {
    this.terminal = new Terminal({
      fontFamily: variable("--mono"),
      fontSize: 13,
      cursorBlink: false,
      scrollback: 10_000,
      screenReaderMode: true,
      theme: { background: "#14181d", foreground: "#e3e8ee", cursor: "#7fd6dd" },
    });
    this.terminal.loadAddon(this.fit);
    this.terminal.open(box);
    this.terminal.textarea?.setAttribute("aria-label", label);
    this.terminal.onData((data) => this.input(data));
    this.terminal.onResize(({ cols, rows }) => this.send({ type: "resize", cols, rows }));
    this.sizes = new ResizeObserver(() => this.fitNow());
    this.sizes.observe(box);
    this.fitNow();
    this.connect();
    this.terminal.focus();
  }

  /** Fits and focuses the terminal after it was hidden. */
  show(): void {
    requestAnimationFrame(() => {
      this.fitNow();
      this.terminal.focus();
    });
  }

  dispose(): void {
    this.state = "disposed";
    clearTimeout(this.timer);
    this.sizes.disconnect();
    this.socket?.close();
    this.terminal.dispose();
  }

  private fitNow(): void {
    if (this.terminal.element?.offsetParent) this.fit.fit();
  }

  private connect(): void {
    const url = new URL(this.path, location.href.replace(/^http/, "ws"));
    // A page cannot set a header of a WebSocket: the key is a subprotocol, so it is in no URL.
    const socket = new WebSocket(url, ["shoal-terminal", `shoal-key.${key.value}`]);
    this.socket = socket;
    this.tell("connecting…");
    socket.onopen = () => {
      const { cols, rows } = this.terminal;
      this.send({ type: "init", cols, rows });
    };
    socket.onmessage = (event) => this.hear(JSON.parse(String(event.data)) as ServerMessage);
    socket.onclose = () => this.closed();
  }

  private hear(message: ServerMessage): void {
    switch (message.type) {
      case "ready":
        this.state = "open";
        this.pause = AGAIN_LEAST;
        this.tell("connected");
        break;
      case "output":
        this.terminal.write(message.data);
        break;
      case "error":
        this.terminal.write(`\r\n\x1b[31m${message.error}\x1b[0m\r\n`);
        break;
      case "exit":
        this.state = "ended";
        this.terminal.write(`\r\n\x1b[2mThe shell exited with ${message.code}. Press Enter for another.\x1b[0m\r\n`);
        break;
      case "closed":
        if (this.state === "open") this.state = "ended";
    }
  }

  private closed(): void {
    if (this.state === "disposed") return;
    if (this.state === "ended") return this.tell("ended: press Enter for another");
    if (this.state === "open") this.terminal.write("\r\n\x1b[33mThe connection is lost.\x1b[0m\r\n");
    this.state = "lost";
    this.tell("connection lost: trying again…");
    this.timer = window.setTimeout(() => this.connect(), this.pause);
    this.pause = Math.min(this.pause * 2, AGAIN_MOST);
  }

  private input(data: string): void {
    if (this.state === "ended") {
      if (data === "\r") {
        this.state = "lost";
        this.connect();
      }
      return;
    }
    for (let at = 0; at < data.length; at += PIECE) this.send({ type: "input", data: data.slice(at, at + PIECE) });
  }

  private send(message: object): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }
}
