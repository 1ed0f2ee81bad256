// Set the colour scheme before the page is painted: the stored choice, or that of the system. Not a module, because
// modules run after the first paint.
(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    let stored = null;
    try {
      stored = localStorage.getItem("gristmill-theme");
    } catch {
      // The browser blocks storage.
    }
    document.documentElement.dataset.theme = stored || (system.matches ? "dark" : "light");
  };
  system.addEventListener("change", apply);
  apply();
})();
