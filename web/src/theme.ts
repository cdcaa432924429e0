import { signal } from "@preact/signals";

const STORED = "shoal.theme";

/** The user's choice; empty follows the system. */
export const theme = signal(localStorage.getItem(STORED) ?? "");

export function applyTheme(): void {
  if (theme.value) document.documentElement.dataset.theme = theme.value;
  else delete document.documentElement.dataset.theme;
}

export function isDark(): boolean {
  return theme.value ? theme.value === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export function toggleTheme(): void {
  theme.value = isDark() ? "light" : "dark";
  localStorage.setItem(STORED, theme.value);
  applyTheme();
}

/** The value of a variable of the design that is no colour, for what is drawn by scripts. */
export function variable(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** A colour of the design, for what is drawn by scripts. */
export function colour(name: string, opacity = 1): string {
  // Of a variable itself, only its text is known: `light-dark(…)`.
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return opacity < 1 ? found.replace("rgb(", "rgba(").replace(")", `, ${opacity})`) : found;
}
