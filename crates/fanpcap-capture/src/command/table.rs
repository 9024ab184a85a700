//! Columns of numbers, right-aligned.

/// Lines of a table: each column as wide as its widest cell.
pub(super) fn lines(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(String::len)
            .max()
    };
    let widths: Vec<usize> = (0..columns)
        .map(|column| width(column).unwrap_or(0))
        .collect();
    rows.iter().map(|row| line(row, &widths)).collect()
}

/// One line. Each column has at least its width in `widths`.
pub(super) fn line(row: &[String], widths: &[usize]) -> String {
    let cells = row.iter().zip(widths);
    let cells: Vec<String> = cells
        .map(|(cell, &width)| format!("{cell:>width$}"))
        .collect();
    cells.join("  ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let lines = super::lines(&[row(["thread", "n"]), row(["0", "1234"]), row(["1", ""])]);
        assert_eq!(lines, ["thread     n", "     0  1234", "     1"]);
    }
}
