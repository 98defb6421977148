// The theme before the first paint: the person's choice, else the system's. Loaded in the head, not deferred.
(function () {
  'use strict';
  var root = document.documentElement;
  var key = 'berth-theme';
  var chosen = null;
  try { chosen = localStorage.getItem(key); } catch (e) { /* storage is off: follow the system */ }
  var system = matchMedia('(prefers-color-scheme: dark)');
  function show(theme) {
    root.setAttribute('data-bs-theme', theme);
    root.dispatchEvent(new Event('berth:theme'));
  }
  show(chosen || (system.matches ? 'dark' : 'light'));
  system.addEventListener('change', function () { if (!chosen) show(system.matches ? 'dark' : 'light'); });
  document.addEventListener('click', function (event) {
    if (!event.target.closest('[data-theme-switch]')) return;
    chosen = root.getAttribute('data-bs-theme') === 'dark' ? 'light' : 'dark';
    try { localStorage.setItem(key, chosen); } catch (e) { /* kept until the page is left */ }
    show(chosen);
  });
})();
