// What pages need beyond htmx: copy, print, choices that show their own fields, forms that submit on change.
// Every page works without this file; what only works with it is `hidden` until it has run.
(function () {
  'use strict';

  function each(selector, act) { document.querySelectorAll(selector).forEach(act); }

  function reveal() {
    each('[data-no-script]', function (el) { el.hidden = true; });
    each('[data-theme-switch], [data-print]', function (el) { el.hidden = false; });
    if (navigator.clipboard) each('[data-copy]', function (el) { el.hidden = false; });
    each('.b-pick', showFields);
    showProduct();
    // A fragment link such as /bookings/B-1#release says which verb was meant.
    each('details:has(:target)', function (el) { el.open = true; });
  }

  // A radio group shows the fields that belong to the choice: [data-when=value] inside the same .b-pick.
  function showFields(group) {
    var chosen = group.querySelector('input[type=radio]:checked');
    if (!chosen) return;
    group.querySelectorAll('[data-when]').forEach(function (el) {
      el.hidden = el.getAttribute('data-when') !== chosen.value;
    });
  }

  function showProduct() {
    var out = document.getElementById('product');
    if (!out) return;
    var nodes = Number(document.getElementById('f-nodes').value);
    var each = Number(document.getElementById('f-per-node').value);
    out.textContent = nodes > 0 && each > 0 ? '= ' + (nodes * each).toLocaleString('en-US') + ' units' : '';
  }

  document.addEventListener('input', function (event) {
    if (event.target.id === 'f-nodes' || event.target.id === 'f-per-node') showProduct();
  });

  document.addEventListener('change', function (event) {
    var group = event.target.closest('.b-pick');
    if (group) showFields(group);
    if (event.target.matches('[data-submit]')) event.target.form.requestSubmit();
  });

  document.addEventListener('click', function (event) {
    var copy = event.target.closest('[data-copy]');
    if (copy) {
      var text = copy.parentElement.querySelector('pre').textContent;
      navigator.clipboard.writeText(text).then(function () { say(copy, 'check', 'Copied'); });
    }
    if (event.target.closest('[data-print]')) window.print();
  });

  function say(button, icon, words) {
    var glyph = button.querySelector('i');
    var before = glyph.className;
    var label = button.getAttribute('aria-label');
    glyph.className = 'ti ti-' + icon;
    button.setAttribute('aria-label', words);
    setTimeout(function () { glyph.className = before; button.setAttribute('aria-label', label); }, 1500);
  }

  // "/" goes to the search field, as the key beside it says.
  document.addEventListener('keydown', function (event) {
    if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
    var field = document.querySelector('.b-search input');
    if (field && field.offsetParent) { event.preventDefault(); field.focus(); }
  });

  // While something is being prepared, look again, keep the place, and go on as soon as the answer is another.
  function lookAgain() {
    var shown = document.querySelector('[data-retry]');
    if (!shown) return;
    setTimeout(function () {
      fetch(location.href, { headers: { Accept: 'text/html' } }).then(function (answer) {
        if (answer.status !== 503) return location.reload();
        return answer.text().then(function (html) {
          var fresh = new DOMParser().parseFromString(html, 'text/html').getElementById('progress');
          if (fresh) shown.replaceChildren.apply(shown, fresh.childNodes);
          lookAgain();
        });
      }).catch(lookAgain);
    }, Number(shown.dataset.retry) * 1000);
  }

  document.addEventListener('htmx:after:swap', reveal);
  lookAgain();
  reveal();
})();
