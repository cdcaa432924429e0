import { client, data } from "../api";
import { at, duration } from "../format";
import { touched } from "../live";
import { Loaded, useLoaded } from "../parts/loaded";
import type { TabProps } from "./view";

export function EventsTab({ one }: TabProps) {
  const query = { sandbox: one.id, limit: 100 };
  const events = useLoaded(
    async () => (await data(client.GET("/api/v1/events", { params: { query } }))).items.reverse(),
    [one.id, one.status, touched.value.get(one.id)],
  );
  return (
    <Loaded from={events} empty="Nothing has happened yet.">
      {(items) => (
        <ol class="timeline">
          {items.map((event, index) => {
            const before = items[index - 1];
            return (
              <li>
                <strong>{event.kind}</strong> <time dateTime={event.at}>{at(event.at)}</time>
                {before && (
                  <span class="dim"> {duration((Date.parse(event.at) - Date.parse(before.at)) / 1000)} later</span>
                )}
                {Object.entries(event.detail).map(([name, text]) => (
                  <span class="label">
                    {name}: {text}
                  </span>
                ))}
              </li>
            );
          })}
        </ol>
      )}
    </Loaded>
  );
}
