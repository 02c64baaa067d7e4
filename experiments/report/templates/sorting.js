// Sorts a table by the head of a column or, where rows are cards without a head, by a list above the table.
// A cell's data-value is its number, or empty if it has none; a cell without data-value holds words.
// Without this script every table is complete, in the order in which it was written.
(() => {
  "use strict";
  const words = new Intl.Collator("en", { numeric: true });

  // Numbers, then words, then nothing, whichever way the column is sorted.
  const group = ({ dataset: { value } }) => value === "" ? 2 : value === undefined ? 1 : 0;
  const compare = (one, other) => group(one) === 0
    ? one.dataset.value - other.dataset.value
    : words.compare(one.textContent, other.textContent);

  function element(name, changes = {}, ...inside) {
    const made = Object.assign(document.createElement(name), changes);
    made.append(...inside);
    return made;
  }

  function sortable(table) {
    const body = table.tBodies[0];
    const written = [...body.rows];
    if (written.length < 2) return;
    const heads = [...table.tHead.rows[0].cells];
    const list = element("select", {}, element("option", { value: "" }, "as written"));
    const turn = element("button", { type: "button", disabled: true }, "ascending");

    function sort(head, descending) {
      const way = descending ? -1 : 1;
      const rows = head ? written.toSorted((above, below) => {
        const [one, other] = [above.cells[head.cellIndex], below.cells[head.cellIndex]];
        return group(one) - group(other) || way * compare(one, other);
      }) : written;
      body.append(...rows);
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      if (head) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      list.value = head ? String(head.cellIndex) : "";
      turn.textContent = descending ? "descending" : "ascending";
      turn.disabled = !head;
    }
    const reversed = (head) => sort(head, head.getAttribute("aria-sort") === "ascending");

    for (const head of heads) {
      list.append(element("option", { value: String(head.cellIndex) }, head.textContent));
      const button = element("button", { type: "button", title: "sort by this column" }, ...head.childNodes);
      button.addEventListener("click", () => reversed(head));
      head.append(button);
    }
    list.addEventListener("change", () => sort(list.value ? heads[Number(list.value)] : null, false));
    turn.addEventListener("click", () => reversed(heads[Number(list.value)]));
    table.before(element("p", { className: "sorting soft" }, element("label", {}, "sorted by ", list), " ", turn));
  }

  document.querySelectorAll("table").forEach(sortable);
})();
