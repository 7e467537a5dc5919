/* Tables of many columns become cards on narrow screens (site.css): each cell names its column. */
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("table.docutils")) {
    const heads = [...table.querySelectorAll("thead th")].map(head => head.textContent.trim());
    if (heads.length < 4) continue;
    table.classList.add("cards");
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.children].forEach((cell, number) => {
        cell.dataset.head = heads[number] || "";
        if (!cell.textContent.trim()) cell.replaceChildren(); // a space stands in empty cells
      });
    }
  }
});
