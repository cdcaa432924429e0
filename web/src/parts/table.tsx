import type { ComponentChildren } from "preact";

export interface Column<T> {
  title: string;
  /** Numbers are aligned at the right. */
  number?: boolean;
  /** The title is for screen readers alone. */
  quiet?: boolean;
  cell: (row: T) => ComponentChildren;
}

interface TableProps<T> {
  label: string;
  rows: readonly T[];
  id: (row: T) => string | number;
  columns: readonly Column<T>[];
}

/** A table, which scrolls in itself if it is too wide. */
export function Table<T>({ label, rows, id, columns }: TableProps<T>) {
  const align = (column: Column<T>) => (column.number ? "number" : undefined);
  return (
    <div class="wide" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead>
          <tr>
            {columns.map((column) => (
              <th class={align(column)}>{column.quiet ? <span class="hidden">{column.title}</span> : column.title}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={id(row)}>
              {columns.map((column) => (
                <td class={align(column)}>{column.cell(row)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
