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

/** The value of a variable of the design, for what is drawn by scripts. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
