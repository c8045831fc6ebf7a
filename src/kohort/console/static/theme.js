// Before the first paint: the theme that was chosen here, else that of the system.
const chosen = localStorage.getItem("kohort-theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
