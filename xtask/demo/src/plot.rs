//! Draws the plot of docs/benchmarks.md, the reader's CPU time for a packet as bars, from the
//! page's table.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The heading of the table's first column.
const TABLE: &str = "| CPU time of the reader, ns for a packet |";
/// The beginning of the paragraph that describes the origin of the figures.
const CAPTION: &str = "Measured ";
const WIDTH: f64 = 860.0;
/// Position of the bars' beginning, and length of the longest bar.
const LEFT: f64 = 130.0;
const LONGEST: f64 = 500.0;
const BAR: f64 = 22.0;
/// The colours of the bars of fanpcap and libpcap.
const FILLS: [&str; 2] = ["#d9730d", "#8a97a6"];

/// A row of the table: its name, and the figure of each library.
struct Row<'t> {
    name: &'t str,
    figures: [Figure<'t>; 2],
}

/// A median with its range, such as `10.0 (9.6-11.0)`.
struct Figure<'t> {
    text: &'t str,
    median: f64,
    least: f64,
    most: f64,
}

/// Draws the plot from the table.
pub(crate) fn run() -> Result<()> {
    let path = source("docs/pictures/reader.svg");
    fs::write(&path, reader(&benchmarks()?)?)?;
    println!("{}", path.display());
    Ok(())
}

/// A path below the root of the source tree.
fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

fn benchmarks() -> Result<String> {
    fs::read_to_string(source("docs/benchmarks.md")).context("reading docs/benchmarks.md")
}

/// Makes the plot of the page's table.
fn reader(page: &str) -> Result<String> {
    let (_, table) = page
        .split_once(TABLE)
        .context("docs/benchmarks.md: no table")?;
    let lines = table.lines().skip(2);
    let rows: Vec<Row<'_>> = lines
        .take_while(|line| line.starts_with('|'))
        .map(row)
        .collect::<Result<_>>()?;
    ensure!(!rows.is_empty(), "docs/benchmarks.md: the table is empty");
    let mut paragraphs = table.split("\n\n");
    let caption = paragraphs.find(|text| text.starts_with(CAPTION));
    let caption = caption.context("docs/benchmarks.md: no \"Measured ...\"")?;
    draw(&rows, &caption.replace('\n', " "))
}

fn row(line: &str) -> Result<Row<'_>> {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [name, ours, theirs, ..] = cells[..] else {
        anyhow::bail!("{line}: too few columns");
    };
    let figures = [figure(ours)?, figure(theirs)?];
    Ok(Row { name, figures })
}

fn figure(text: &str) -> Result<Figure<'_>> {
    let parts = text.trim_end_matches(')').split_once(" (");
    let (median, range) = parts.with_context(|| format!("{text}: no median and range"))?;
    let (least, most) = range.split_once('-').context("a range")?;
    Ok(Figure {
        text,
        median: median.parse()?,
        least: least.parse()?,
        most: most.parse()?,
    })
}

fn draw(rows: &[Row<'_>], caption: &str) -> Result<String> {
    let figures = rows.iter().flat_map(|row| &row.figures);
    let longest = figures.map(|figure| figure.most).fold(1.0, f64::max);
    let mut svg = String::new();
    let mut y = 62.0;
    for row in rows {
        writeln!(svg, "{}", text(16.0, y, "bold", row.name))?;
        y += 12.0;
        for ((name, fill), figure) in ["fanpcap", "libpcap"].iter().zip(FILLS).zip(&row.figures) {
            let at = |value: f64| LEFT + value / longest * LONGEST;
            writeln!(svg, "{}", text(62.0, y + 16.0, "normal", name))?;
            let width = at(figure.median) - LEFT;
            writeln!(
                svg,
                "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{fill}\"/>"
            )?;
            let (least, most, middle) = (at(figure.least), at(figure.most), y + BAR / 2.0);
            writeln!(
                svg,
                "<path d=\"M{least:.1} {middle}H{most:.1}\" stroke=\"#222\" stroke-width=\"2\"/>"
            )?;
            writeln!(
                svg,
                "{}",
                text(most + 10.0, y + 16.0, "normal", figure.text)
            )?;
            y += BAR + 4.0;
        }
        y += 24.0;
    }
    for line in lines(caption) {
        writeln!(svg, "{}", text(16.0, y, "small", &line))?;
        y += 15.0;
    }
    let title = "CPU time of the reader for a packet, in nanoseconds: less is better";
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {0}\" width=\"{WIDTH}\" \
         height=\"{0}\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"14\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"28\" font-size=\"17\" font-weight=\"bold\">{title}</text>\n{svg}</svg>\n",
        y + 4.0
    ))
}

/// Breaks the caption into lines that fit into the picture.
fn lines(caption: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in caption.split(' ') {
        let last = lines.len() - 1;
        if lines[last].len() + word.len() > 100 {
            lines.push(word.to_owned());
        } else {
            lines[last] = format!("{} {word}", lines[last]).trim_start().to_owned();
        }
    }
    lines
}

fn text(x: f64, y: f64, kind: &str, text: &str) -> String {
    let look = match kind {
        "small" => "font-size=\"11.5\" fill=\"#555\"".to_owned(),
        weight => format!("font-weight=\"{weight}\" fill=\"#222\""),
    };
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" {look}>{}</text>",
        text.replace('&', "&amp;").replace('<', "&lt;")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plot_is_of_the_table() {
        let drawn = reader(&benchmarks().unwrap()).unwrap();
        let there = fs::read_to_string(source("docs/pictures/reader.svg")).unwrap();
        assert!(drawn == there, "run: cargo run -p fanpcap-demo -- plot");
    }
}
