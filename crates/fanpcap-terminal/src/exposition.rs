//! Prometheus' text format 0.0.4: families of samples, escaped.

use std::fmt::Write;

/// The kind of a family's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Numbers that only grow, until a new series begins.
    Counter,
    /// Numbers that rise and fall.
    Gauge,
}

/// A label's name and value.
pub type Label = (&'static str, String);

/// Samples of one name.
#[derive(Clone, Debug)]
pub struct Family {
    /// Name.
    pub name: &'static str,
    /// A sentence that describes the family.
    pub help: &'static str,
    /// The kind of the numbers.
    pub kind: Kind,
    /// Labels and number of each sample.
    pub samples: Vec<(Vec<Label>, Number)>,
}

/// A sample's number.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// A number of packets, bytes or members.
    Whole(u64),
    /// A number that may be negative, such as a steering program's counter.
    Signed(i64),
    /// Seconds.
    Seconds(f64),
}

/// The families as text. A family without samples is left out.
pub fn text(families: &[Family]) -> String {
    let mut text = String::new();
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let name = family.name;
        text += &format!("# HELP {name} {}\n", escape(family.help, false));
        text += &format!("# TYPE {name} {kind}\n");
        for (labels, number) in &family.samples {
            text += &sample(name, labels, *number);
        }
    }
    text
}

fn sample(name: &str, labels: &[Label], number: Number) -> String {
    let labels: Vec<String> = labels
        .iter()
        .map(|(label, value)| format!("{label}=\"{}\"", escape(value, true)))
        .collect();
    let mut line = format!("{name}{{{}}} ", labels.join(","));
    // Writing to a string can't fail.
    let _ = match number {
        Number::Whole(number) => writeln!(line, "{number}"),
        Number::Signed(number) => writeln!(line, "{number}"),
        Number::Seconds(number) => writeln!(line, "{number:.3}"),
    };
    line
}

/// Escapes backslashes and line ends, and in labels also quotes.
fn escape(text: &str, quotes: bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' => escaped += "\\\\",
            '\n' => escaped += "\\n",
            '"' if quotes => escaped += "\\\"",
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_escaped_and_ends_with_its_line() {
        let family = Family {
            name: "x_total",
            help: "A \"back\\slash\".",
            kind: Kind::Counter,
            samples: vec![
                (
                    vec![("a", "q\"b\\n\nü".to_owned()), ("b", String::new())],
                    Number::Whole(u64::MAX),
                ),
                (Vec::new(), Number::Seconds(0.25)),
            ],
        };
        let expected = "# HELP x_total A \"back\\\\slash\".\n\
                        # TYPE x_total counter\n\
                        x_total{a=\"q\\\"b\\\\n\\nü\",b=\"\"} 18446744073709551615\n\
                        x_total{} 0.250\n";
        assert_eq!(text(&[family]), expected);
    }

    #[test]
    fn a_family_without_samples_is_left_out() {
        let family = Family {
            name: "x",
            help: "X.",
            kind: Kind::Gauge,
            samples: Vec::new(),
        };
        assert_eq!(text(&[family]), "");
    }
}
