/** An event of a stream of server-sent events. */
export interface StreamEvent {
  event: string;
  data: string;
}

/** Parses server-sent events from pieces of text, however they are cut. */
export class EventParser {
  private rest = "";
  private event = "";
  private lines: string[] = [];

  /** The events that are complete with this piece. */
  push(piece: string): StreamEvent[] {
    this.rest += piece;
    const found: StreamEvent[] = [];
    for (;;) {
      const end = /\r\n|\n|\r(?!$)/.exec(this.rest);
      if (!end) return found;
      const line = this.rest.slice(0, end.index);
      this.rest = this.rest.slice(end.index + end[0].length);
      this.take(line, found);
    }
  }

  private take(line: string, found: StreamEvent[]): void {
    if (line === "") {
      if (this.event || this.lines.length) {
        found.push({ event: this.event || "message", data: this.lines.join("\n") });
      }
      this.event = "";
      this.lines = [];
      return;
    }
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") this.event = value;
    if (name === "data") this.lines.push(value);
  }
}

/** The events of an answer until it ends, in the pieces in which they came. */
export async function* streamEvents(response: Response): AsyncGenerator<StreamEvent[]> {
  const parser = new EventParser();
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield parser.push(value);
  }
}
