// Takes the page anew every two seconds and puts its parts in place, so that it
// keeps where it is scrolled to.
(() => {
  'use strict';
  const every = 2000;
  const lost = document.getElementById('lost');
  let answered = new Date();

  function show(next) {
    if (next.body.dataset.build !== document.body.dataset.build) {
      location.reload();
      return;
    }
    document.title = next.title;
    document.querySelector('link[rel=icon]').href = next.querySelector('link[rel=icon]').href;
    // The state is read aloud when it changes, so it is left alone when it does not.
    const state = document.getElementById('state'), now = next.getElementById('state');
    if (state.textContent !== now.textContent) state.textContent = now.textContent;
    state.className = now.className;
    document.querySelector('main').replaceWith(next.querySelector('main'));
  }

  async function update() {
    // Not while nobody sees it, nor while somebody marks a command to copy it.
    if (document.hidden || !getSelection().isCollapsed) return;
    try {
      const answer = await fetch(location.pathname, {cache: 'no-store', signal: AbortSignal.timeout(5000)});
      if (!answer.ok) throw new Error(answer.status);
      const next = new DOMParser().parseFromString(await answer.text(), 'text/html');
      if (!next.querySelector('main')) throw new Error('not the page');
      show(next);
      answered = new Date();
      lost.hidden = true;
    } catch {
      lost.textContent = 'No answer from this process since ' + answered.toLocaleTimeString() + '. What follows is older.';
      lost.hidden = false;
    }
  }

  async function loop() {
    await update();
    setTimeout(loop, every);
  }
  setTimeout(loop, every);
  document.addEventListener('visibilitychange', update);
})();
