// Dialogs, shortcuts of the keyboard, and nothing else: every page works without this file.
"use strict";

const dialog = document.getElementById("dialog");

document.addEventListener("htmx:afterSwap", (event) => {
  if (event.target.id === "dialog-content" && !dialog.open) dialog.showModal();
  if (dialog.contains(event.target)) dialog.querySelector("[autofocus], input:not([type=hidden]), textarea, button")?.focus();
});

// A change that was made shows in the page behind.
dialog.addEventListener("close", () => {
  const isDone = dialog.querySelector("[data-done]") !== null;
  document.getElementById("dialog-content").replaceChildren();
  if (isDone) location.reload();
});

document.addEventListener("click", (event) => {
  if (dialog.open && event.target.closest("[data-close]")) {
    event.preventDefault();
    dialog.close();
  }
  const all = event.target.closest("[data-all]");
  if (all) document.querySelectorAll(all.dataset.all).forEach((box) => { box.checked = all.checked; });
});

// "/" finds, "g" and a letter go to a part of the menu.
let isGoing = false;

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
  if (event.target.closest("input, textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const target = isGoing
    ? document.querySelector(`[data-go="${CSS.escape(event.key)}"]`)
    : document.querySelector(`[data-shortcut="${CSS.escape(event.key)}"]`);
  isGoing = !isGoing && event.key === "g";
  if (!target) return;
  event.preventDefault();
  if (target.matches("a, button")) target.click();
  else target.focus();
});
