//! Draws a row: a bar for each median, and a line from the least to the greatest value.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::spread::Spread;

/// The picture of a row.
#[derive(Debug)]
pub(crate) struct Picture {
    pub(crate) heading: String,
    /// Machine, version and date.
    pub(crate) captions: Vec<String>,
    /// The warning for figures that are not results.
    pub(crate) warning: Option<String>,
    pub(crate) panels: Vec<Panel>,
}

/// One figure of all columns.
#[derive(Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) bars: Vec<Bar>,
}

/// Median, least and greatest value of one column.
#[derive(Debug)]
pub(crate) struct Bar {
    pub(crate) name: &'static str,
    pub(crate) spread: Spread,
}

// These sizes are in pixels.
const WIDTH: u32 = 1000;
const HEADING: u32 = 40;
/// Height of a caption.
const CAPTION: u32 = 18;
/// Height of a panel without its bars: title, axis, space.
const PANEL: u32 = 92;
const BAR: u32 = 30;
/// Width left of the bars for names, and right of them for values.
const NAMES: u32 = 300;
const VALUES: u32 = 190;
const INK: RGBColor = RGBColor(40, 40, 40);
const FILL: RGBColor = RGBColor(175, 180, 188);
/// Colour of our library's bars.
const OURS: RGBColor = RGBColor(230, 140, 40);
const WARNING: RGBColor = RGBColor(190, 20, 20);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws the panels below each other into a file.
pub(crate) fn draw(path: &Path, picture: &Picture) -> Result<()> {
    let panels = picture.panels.iter().map(Panel::height).sum::<u32>();
    let height = picture.head() + panels;
    let all = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    picture
        .draw(&all)
        .map_err(|error| anyhow!("drawing: {error}"))
}

impl Picture {
    fn lines(&self) -> impl Iterator<Item = (&str, RGBColor)> {
        let warning = self.warning.iter().map(|line| (line.as_str(), WARNING));
        warning.chain(self.captions.iter().map(|line| (line.as_str(), INK)))
    }

    /// Height of the heading.
    fn head(&self) -> u32 {
        let lines = u32::try_from(self.lines().count()).unwrap_or(0);
        HEADING + CAPTION * lines + 8
    }

    fn draw(&self, all: &Area<'_>) -> Result<(), Box<dyn std::error::Error>> {
        all.fill(&WHITE)?;
        let (top, mut rest) = all.split_vertically(self.head());
        top.draw(&Text::new(self.heading.clone(), (12, 12), style(17.0)))?;
        let mut y = i32::try_from(HEADING)?;
        for (line, colour) in self.lines() {
            let style = ("sans-serif", 12.0).into_font().color(&colour);
            top.draw(&Text::new(line.to_owned(), (12, y), style))?;
            y += i32::try_from(CAPTION)?;
        }
        for panel in &self.panels {
            let (area, below) = rest.split_vertically(panel.height());
            panel.draw(&area)?;
            rest = below;
        }
        all.present()?;
        Ok(())
    }
}

impl Panel {
    fn height(&self) -> u32 {
        PANEL + BAR * self.count()
    }

    fn count(&self) -> u32 {
        u32::try_from(self.bars.len()).unwrap_or(0)
    }

    fn draw(&self, area: &Area<'_>) -> Result<(), Box<dyn std::error::Error>> {
        area.draw(&Text::new(self.title.clone(), (12, 10), style(14.0)))?;
        let most = reach(&self.bars);
        let (_, area) = area.split_vertically(34);
        let bottom = self.count();
        let mut chart = ChartBuilder::on(&area)
            .margin_right(VALUES)
            .margin_bottom(12)
            .x_label_area_size(30)
            .y_label_area_size(NAMES)
            .build_cartesian_2d(0.0..most, f64::from(bottom)..0.0)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .light_line_style(WHITE.mix(0.0))
            .bold_line_style(INK.mix(0.15))
            .axis_style(INK.mix(0.6))
            .y_labels(0)
            .x_labels(6)
            .x_label_formatter(&|value| short(*value))
            .label_style(style(12.0))
            .draw()?;
        for (line, bar) in (0_u32..).zip(&self.bars) {
            bar.draw(&mut chart, f64::from(line), &area)?;
        }
        Ok(())
    }
}

/// Length of the axis. It is finite and not 0, because otherwise the axis would have infinitely
/// many marks.
fn reach(bars: &[Bar]) -> f64 {
    let most = bars.iter().map(|bar| bar.spread.most);
    let most = most.filter(|most| most.is_finite()).fold(0.0, f64::max);
    if most > 0.0 { most * 1.05 } else { 1.0 }
}

type Chart<'a, 'b> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;

impl Bar {
    /// The colour of a bar. Our library's bars stand out.
    fn fill(&self) -> RGBColor {
        let is_ours = ["fanpcap", "ours", "flow"]
            .iter()
            .any(|name| self.name.contains(name));
        if is_ours { OURS } else { FILL }
    }

    fn draw(
        &self,
        chart: &mut Chart<'_, '_>,
        top: f64,
        area: &Area<'_>,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let Spread {
            median,
            least,
            most,
            ..
        } = self.spread;
        let middle = top + 0.5;
        let lines = [
            [(least, middle), (most, middle)],
            [(least, middle - 0.16), (least, middle + 0.16)],
            [(most, middle - 0.16), (most, middle + 0.16)],
        ];
        let filled = Rectangle::new(
            [(0.0, top + 0.2), (median, top + 0.8)],
            self.fill().filled(),
        );
        chart.draw_series([filled])?;
        chart.draw_series(lines.map(|line| PathElement::new(line, INK.stroke_width(2))))?;

        let (_, y) = chart.backend_coord(&(0.0, middle));
        let (_, range) = area.get_pixel_range();
        let y = y - range.start;
        let from = |x: u32| i32::try_from(x).unwrap_or(0);
        let right = style(13.0).pos(Pos::new(HPos::Right, VPos::Center));
        let left = style(12.0).pos(Pos::new(HPos::Left, VPos::Center));
        let value = format!("{} ({}-{})", short(median), short(least), short(most));
        area.draw(&Text::new(self.name, (from(NAMES) - 10, y), right))?;
        area.draw(&Text::new(value, (from(WIDTH - VALUES) + 10, y), left))?;
        Ok(())
    }
}

fn style(size: f64) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

/// Three digits, and a letter for thousands or millions.
fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 1e6 => (value / 1e6, " M"),
        size if size >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        0.0 => 0,
        size if size < 10.0 => 2,
        size if size < 100.0 => 1,
        _ => 0,
    };
    format!("{scaled:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let told = [
            0.0,
            0.735,
            9.7,
            78.4,
            99.96,
            409.0,
            9122.0,
            65_000.0,
            3_317_616.0,
        ]
        .map(short);
        let expected = [
            "0", "0.73", "9.70", "78.4", "100.0", "409", "9122", "65.0 k", "3.32 M",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn an_axis_has_an_end_and_a_length() {
        let bar = |most| Bar {
            name: "bar",
            spread: Spread {
                median: 0.0,
                least: 0.0,
                most,
                quartiles: None,
            },
        };
        assert_eq!(reach(&[bar(0.0)]), 1.0);
        assert_eq!(reach(&[bar(2.0), bar(f64::INFINITY)]), 2.1);
        assert_eq!(reach(&[]), 1.0);
    }

    #[test]
    fn every_name_and_value_is_in_the_picture() {
        let scratch = fanpcap_testbed::Scratch::new().unwrap();
        let file = scratch.file("row.svg");
        let spread = Spread {
            median: 2.0,
            least: 1.0,
            most: 3.0,
            quartiles: None,
        };
        let bars = ["fanpcap", "libpcap"].map(|name| Bar { name, spread });
        let panel = Panel {
            title: "captured".to_owned(),
            bars: bars.into(),
        };
        let picture = Picture {
            heading: "a row".to_owned(),
            captions: vec!["a machine, Linux 6".to_owned()],
            warning: Some("NOT A RESULT".to_owned()),
            panels: vec![panel],
        };
        draw(&file, &picture).unwrap();
        let text = std::fs::read_to_string(file).unwrap();
        for part in [
            "a row",
            "a machine, Linux 6",
            "NOT A RESULT",
            "captured",
            "fanpcap",
            "libpcap",
            "2.00 (1.00-3.00)",
        ] {
            assert!(text.contains(part), "{part}");
        }
    }
}
