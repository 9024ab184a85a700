//! The examples of the manual pages of section 1: tests parse and run them.

/// The text of the examples. A line that begins with `=` names a page. Each example of this page
/// follows as a purpose and an indented command line.
const EXAMPLES: &str = include_str!("../../../docs/man/examples.in");

/// The examples by page. An example is a purpose and a command line.
fn pages() -> Vec<(&'static str, Vec<(&'static str, &'static str)>)> {
    let mut pages: Vec<(_, Vec<_>)> = Vec::new();
    let mut what = "";
    for line in EXAMPLES.lines() {
        if let Some(page) = line.strip_prefix("= ") {
            pages.push((page, Vec::new()));
        } else if let (Some(example), Some((_, of_page))) =
            (line.strip_prefix("    "), pages.last_mut())
        {
            of_page.push((what, example));
        } else {
            what = line;
        }
    }
    pages
}

/// The section of a page. The page of `disable` has the examples of `enable`, with `disable` in
/// them.
pub(super) fn section(page: &str) -> Option<String> {
    let page_of = if page == "fanpcap-disable" {
        "fanpcap-enable"
    } else {
        page
    };
    let (_, examples) = pages().into_iter().find(|(name, _)| *name == page_of)?;
    let mut text = ".SH EXAMPLES\n".to_owned();
    for (what, line) in examples {
        let line = match page == page_of {
            true => line.to_owned(),
            false => line.replace("enable", "disable"),
        };
        let line = line
            .replace('\\', "\\e")
            .replace('-', "\\-")
            .replace('\'', "\\(aq");
        let line = line.replace(" && ", "\n");
        text += &format!("{what}:\n.PP\n.RS 4\n.EX\n{line}\n.EE\n.RE\n.PP\n");
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replaces the spaces within quotes, so that a quoted argument is one word.
    fn in_one_word(line: &str) -> String {
        let parts = line.split('\'').enumerate();
        let quoted = |part: &str| part.replace(' ', "_");
        let parts = parts.map(|(at, part)| match at % 2 {
            1 => quoted(part),
            _ => part.to_owned(),
        });
        parts.collect()
    }

    #[test]
    fn each_example_is_of_its_page_and_is_understood() {
        for (page, examples) in pages() {
            for (_, line) in examples {
                for command in line.split(" && ") {
                    let shown = command.replace("eval \"$(", "").replace(")\"", "");
                    let shown = in_one_word(&shown);
                    // Environment variables may stand before the command.
                    let words = shown.split(' ').skip_while(|word| word.contains("PCAP_"));
                    let words: Vec<&str> = words.collect();
                    crate::command()
                        .try_get_matches_from(&words)
                        .unwrap_or_else(|error| panic!("{error}"));
                    let name = page.replace('-', " ");
                    let is_own = page == "fanpcap" || words.join(" ").starts_with(&name);
                    assert!(is_own, "{page}: {command}");
                }
            }
        }
    }
}
