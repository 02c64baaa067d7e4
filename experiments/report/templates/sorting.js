// Sorts a table by the head of a column or, where rows are cards without a head, by a list above the table.
// Without this script every table stands as it was written, and whole.
(() => {
  "use strict";
  const words = new Intl.Collator("en", { numeric: true });
  // What a cell begins with: a number, alone or before "±", "%", "of 3", a unit, an interval's end. Not dates, not digests.
  const begins = /^(<?)\s*([+\u2212-]?\d[\d,]*(?:\.\d+)?)(?![\w.:,\u2013\u2212-])/;

  function number(text) {
    const found = begins.exec(text);
    if (!found) return null;
    const value = Number(found[2].replaceAll(",", "").replace("\u2212", "-"));
    return found[1] ? value - 1e-9 : value;  // "< 0.001" comes before "0.001"
  }

  const told = (cell) => {
    const text = cell.textContent.trim();
    return text === "\u2013" ? "" : text;
  };

  // The column's values, each as [group, value]: numbers, words, nothing. A group stays behind the one before it.
  function keys(rows, head) {
    const texts = rows.map((row) => told(row.cells[head.cellIndex]));
    const numbers = texts.map(number);
    const counts = head.classList.contains("n") || texts.every((text, at) => !text || numbers[at] !== null);
    return texts.map((text, at) => {
      if (!text) return [2, ""];
      return counts && numbers[at] !== null ? [0, numbers[at]] : [1, text];
    });
  }

  function arrange(body, written, head, descending) {
    const way = descending ? -1 : 1;
    const found = head ? keys(written, head) : [];
    const places = [...written.keys()];
    if (head) {
      places.sort((left, right) => {
        const [group, value] = found[left];
        const [other, against] = found[right];
        if (group !== other) return group - other;
        return way * (group === 0 ? value - against : words.compare(value, against)) || left - right;
      });
    }
    body.append(...places.map((at) => written[at]));
  }

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
      arrange(body, written, head, descending);
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
