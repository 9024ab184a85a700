//! Makes fanpcap-lang(7), the manual page of the steering language, from the compiler's own table.

use fanpcap_steer::table::{self, Described, Group, Refused};
use fanpcap_steer::{
    CALLS_MAX, DEPTH_MAX, FILTER_LENGTH_MAX, FILTERS_MAX, INNER_MAX, LIST_MAX, NODES_MAX,
    PARAMETERS_MAX, SAMPLERS_MAX, SOURCE_MAX, WORK_MAX, modes,
};

/// The hand-written part before the table.
const INTRODUCTION: &str = include_str!("../../../docs/man/fanpcap-lang.7.in");
const LIMITS: [(usize, &str); 11] = [
    (SOURCE_MAX, "bytes of source."),
    (
        DEPTH_MAX,
        "nested expressions; nested functions and predicates.",
    ),
    (
        CALLS_MAX,
        "nested expressions after definitions are expanded.",
    ),
    (PARAMETERS_MAX, "parameters of a definition."),
    (LIST_MAX, "elements of a list."),
    (INNER_MAX, "nested uses of inner."),
    (NODES_MAX, "functions and predicates in a program."),
    (WORK_MAX, "steps to expand definitions."),
    (SAMPLERS_MAX, "uses of sample."),
    (FILTERS_MAX, "different pcap expressions."),
    (FILTER_LENGTH_MAX, "bytes of a pcap expression."),
];

/// The page.
pub(super) fn page() -> String {
    let mut page = format!(
        ".TH fanpcap-lang 7 2026 \"fanpcap {}\" fanpcap\n\
         .SH NAME\nfanpcap\\-lang \\- the language of steering programs\n{INTRODUCTION}",
        env!("CARGO_PKG_VERSION")
    );
    page.extend(table::GROUPS.iter().map(group));
    page += ".SH MODES\nThese fan-out modes are programs:\n";
    page.extend(
        modes::MODES
            .iter()
            .map(|(name, program)| format!(".TP\n\\fB{}\\fR\n{}\n", escaped(name), line(program))),
    );
    page += ".SH \"NOT IN THE LANGUAGE\"\nWhat PFQ has and this language refuses:\n";
    page.extend(table::REFUSED.iter().map(refused));
    page += ".SH LIMITS\n";
    page.extend(
        LIMITS
            .iter()
            .map(|(most, what)| format!(".TP\n{most}\n{}\n", line(what))),
    );
    page += ".SH \"SEE ALSO\"\n.BR fanpcap\\-lang (1),\n.BR pcap.conf (5),\n.BR pcap-filter (7),\n.BR pcap_fanout (3PCAP)\n";
    page
}

fn group(group: &Group) -> String {
    let entries: String = group.entries.iter().map(entry).collect();
    format!(".SH \"{}\"\n{}\n{entries}", group.title, line(group.about))
}

/// An entry: name, type, meaning, example.
fn entry(described: &Described) -> String {
    let entry = &described.entry;
    let parameters: String = entry
        .takes
        .iter()
        .map(|parameter| format!(" \\fI{}\\fR", escaped(parameter.name)))
        .collect();
    let mut text = format!(
        ".TP\n\\fB{}\\fR{parameters} :: {}\n{}\n",
        escaped(entry.name),
        escaped(&entry.signature()),
        line(described.meaning)
    );
    if !described.ipv6.is_empty() {
        text += &format!("IPv6: {}\n", line(described.ipv6));
    }
    if !entry.aliases.is_empty() {
        text += &format!("Also \\fB{}\\fR.\n", escaped(&entry.aliases.join(", ")));
    }
    let limit = entry.engines.limit();
    if !limit.is_empty() {
        text += &format!("({limit})\n");
    }
    text + &format!(".br\n\\f(CR{}\\fR\n", escaped(entry.example))
}

fn refused(refused: &Refused) -> String {
    format!(
        ".TP\n\\fB{}\\fR\n{}: {}.\n",
        escaped(&refused.names.join(", ")),
        line(refused.reason),
        escaped(refused.instead)
    )
}

/// Escapes a text that may begin a line of the source.
fn line(text: &str) -> String {
    format!("\\&{}", escaped(text))
}

/// Escapes troff's commands in a text.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('`', "\\(ga")
        .replace('^', "\\(ha")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_function_with_its_example() {
        let page = page();
        for entry in table::entries() {
            assert!(page.contains(&format!(".TP\n\\fB{}\\fR", escaped(entry.name))));
            assert!(page.contains(&escaped(entry.example)), "{}", entry.name);
        }
        for name in table::REFUSED.iter().flat_map(|refused| refused.names) {
            assert!(page.contains(name), "{name}");
        }
    }

    #[test]
    fn no_text_is_taken_for_a_command() {
        assert_eq!(line(".SH a\\b `x` -1"), "\\&.SH a\\eb \\(gax\\(ga \\-1");
    }
}
