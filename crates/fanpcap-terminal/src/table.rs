//! Tables of text.

/// The lines of a table. Each column is as wide as its widest cell. A row may have fewer cells than
/// the others. A left-aligned last cell is not padded.
pub fn lines(rows: &[Vec<String>], is_left: impl Fn(usize) -> bool) -> Vec<String> {
    let length = |cell: &String| cell.chars().count();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(length).max().unwrap_or(0)
    };
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let cell = |row: &[String], column: usize| match (&row[column], widths[column]) {
        (cell, _) if is_left(column) && column + 1 == columns => cell.clone(),
        (cell, width) if is_left(column) => format!("{cell:width$}"),
        (cell, width) => format!("{cell:>width$}"),
    };
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = (0..row.len()).map(|column| cell(row, column)).collect();
        cells.join("  ")
    };
    rows.iter().map(line).collect()
}

/// Removes the columns in which `is_empty` is true for each cell below the heading.
pub fn without_empty(
    rows: &[Vec<String>],
    is_empty: impl Fn(usize, &str) -> bool,
) -> Vec<Vec<String>> {
    let is_used = |column: usize| {
        let mut cells = rows.iter().skip(1).filter_map(|row| row.get(column));
        cells.any(|cell| !is_empty(column, cell))
    };
    let used = |row: &Vec<String>| {
        let cells = row
            .iter()
            .enumerate()
            .filter(|(column, _)| is_used(*column));
        cells.map(|(_, cell)| cell.clone()).collect()
    };
    rows.iter().map(used).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let rows = [row(["thread", "n"]), row(["0", "1234"]), row(["1", ""])];
        let right = lines(&rows, |_| false);
        assert_eq!(right, ["thread     n", "     0  1234", "     1      "]);
        let left = lines(&rows, |_| true);
        assert_eq!(left, ["thread  n", "0       1234", "1       "]);
    }

    #[test]
    fn columns_without_a_figure_are_left_out() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [
            row(["a", "b", "c"]),
            row(["1", "-", "-"]),
            row(["2", "-", "3"]),
        ];
        let used = without_empty(&rows, |_, cell| cell == "-");
        assert_eq!(used, [["a", "c"], ["1", "-"], ["2", "3"]]);
    }
}
