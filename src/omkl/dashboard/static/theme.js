// Not a module: it has to run before the first paint, or a dark page begins with a white flash.
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const kept = () => {
    try {
      return localStorage.getItem("theme");
    } catch {
      return null; // storage is forbidden: the system's theme, then
    }
  };

  function apply() {
    root.dataset.theme = kept() ?? (system.matches ? "dark" : "light");
    dispatchEvent(new Event("theme"));
  }

  function toggle() {
    const theme = root.dataset.theme === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("theme", theme);
    } catch {
      // this time only
    }
    root.dataset.theme = theme;
    dispatchEvent(new Event("theme"));
  }

  apply();
  system.addEventListener("change", apply);
  addEventListener("DOMContentLoaded", () => document.getElementById("theme").addEventListener("click", toggle));
})();
