(() => {
  "use strict";
  const box = document.querySelector("p.filter");
  const input = document.getElementById("filter");
  const rows = Array.from(document.querySelectorAll("table.rows tbody tr"), (row) => [row, row.textContent.toLowerCase()]);
  const show = () => {
    const wanted = input.value.trim().toLowerCase();
    for (const [row, text] of rows) row.hidden = wanted !== "" && !text.includes(wanted);
    if (wanted !== "") for (const details of document.querySelectorAll("details")) details.open = true;
  };
  let timer;
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(show, 120);
  });
  box.hidden = false;
})();
