//! Differences between two texts, by line.

use std::cmp::max;

/// The size of a printed difference: lines, and characters of each line.
const LINES: usize = 40;
const WIDTH: usize = 160;

/// The differences between two texts, cut to `LINES` lines of `WIDTH` characters.
pub fn difference(first: &str, second: &str) -> String {
    let whole = whole(first, second);
    let mut lines = whole
        .lines()
        .map(|line| line.chars().take(WIDTH).collect::<String>() + "\n");
    let shown: String = lines.by_ref().take(LINES).collect();
    match lines.count() {
        0 => shown,
        more => format!("{shown}  and {more} lines more\n"),
    }
}

/// The lines that only the first text has, with `- `, and the lines that only the second text has,
/// with `+ `. Before each of them is the last line that both texts have.
fn whole(first: &str, second: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (first.lines().collect(), second.lines().collect());
    let common = common_after(&a, &b);
    let (mut i, mut j, mut text) = (0, 0, String::new());
    let mut before = None;
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            before = Some(a[i]);
            (i, j) = (i + 1, j + 1);
            continue;
        }
        if let Some(line) = before.take() {
            text += &format!("    {line}\n");
        }
        if j == b.len() || i < a.len() && common[i + 1][j] >= common[i][j + 1] {
            text += &format!("  - {}\n", a[i]);
            i += 1;
        } else {
            text += &format!("  + {}\n", b[j]);
            j += 1;
        }
    }
    text
}

/// For each pair of positions, the length of the longest common subsequence of the lines from these
/// positions on.
fn common_after(a: &[&str], b: &[&str]) -> Vec<Vec<usize>> {
    let mut common = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i][j] = if a[i] == b[j] {
                common[i + 1][j + 1] + 1
            } else {
                max(common[i + 1][j], common[i][j + 1])
            };
        }
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_none() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), "");
    }

    #[test]
    fn each_difference_has_the_line_before_it() {
        let text = difference("a\nb\nc\nd\n", "a\nx\nc\nd\ne\n");
        assert_eq!(text, "    a\n  - b\n  + x\n    d\n  + e\n");
    }
}
