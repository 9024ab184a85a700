//! Errors in settings: the mistake, its place (source, line, column, text), and a hint.

pub use fanpcap_steer::quote;
use std::fmt;

/// The place of a mistake in a config file, a variable or a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file's path, or one of `environment`, `pcap_fanout()` and `device`.
    pub source: String,
    /// Line number, from 1.
    pub line: usize,
    /// Column in characters, from 1. If something is missing at the end of the line, the column is
    /// one past the end.
    pub column: usize,
    /// The line itself.
    pub text: String,
}

impl Place {
    /// The place of byte `offset` of `text`, which is line `line` of `source`.
    pub fn new(source: &str, line: usize, text: &str, offset: usize) -> Place {
        let before = text.char_indices().take_while(|(at, _)| *at < offset);
        let column = before.count() + 1;
        Place {
            source: source.to_owned(),
            line,
            column,
            text: text.to_owned(),
        }
    }

    /// Formats the line and a caret under the column, in at most `room` bytes. Cuts a long line on
    /// both sides of the caret. `None` if `room` is too small.
    fn excerpt(&self, room: usize) -> Option<String> {
        let line: Vec<char> = self.text.chars().map(harmless).collect();
        let widths = std::iter::once(line.len()).chain((EXCERPT_MIN..EXCERPT_MAX).rev());
        widths
            .map(|width| self.window(&line, width))
            .find(|excerpt| excerpt.len() <= room)
    }

    /// Formats the excerpt with `width` characters of the line.
    fn window(&self, line: &[char], width: usize) -> String {
        let width = width.min(line.len());
        let caret = (self.column - 1).min(line.len());
        let from = caret.saturating_sub(width / 2).min(line.len() - width);
        let head = if from > 0 { ELLIPSIS } else { "" };
        let tail = if from + width < line.len() {
            ELLIPSIS
        } else {
            ""
        };
        let shown: String = line[from..from + width].iter().collect();
        format!(
            "\n{head}{shown}{tail}\n{:>1$}",
            '^',
            head.len() + caret - from + 1
        )
    }
}

/// An error in settings. [`Report::render`] formats it for an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The name of the error's section in docs/errors.md.
    pub slug: &'static str,
    /// What is wrong.
    pub message: String,
    /// The place; `None` if the error concerns no particular text.
    pub place: Option<Box<Place>>,
    /// What to do.
    pub hint: Option<String>,
}

impl Report {
    /// The report as text of at most `limit` bytes, with the most important part first:
    ///
    /// ```text
    /// /etc/pcap.conf:3:10: unknown mode 'hsah'; did you mean 'hash'?
    /// fanout = hsah
    ///          ^
    /// ```
    pub fn render(&self, limit: usize) -> String {
        let hint = self
            .hint
            .as_ref()
            .map(|hint| format!("; {hint}"))
            .unwrap_or_default();
        let what: String = self
            .message
            .chars()
            .chain(hint.chars())
            .map(harmless)
            .collect();
        let Some(place) = &self.place else {
            return cut(what, limit);
        };
        let source = harmless_text(&place.source);
        let short = shorten(&source);
        let [full, shortened] = [source.as_str(), short.as_str()]
            .map(|source| format!("{source}:{}:{}: {what}", place.line, place.column));
        let heads = [&full, &shortened];
        for head in heads.into_iter().filter(|_| !place.text.is_empty()) {
            let room = limit.saturating_sub(head.len());
            if let Some(excerpt) = place.excerpt(room) {
                return format!("{head}{excerpt}");
            }
        }
        cut(if full.len() <= limit { full } else { shortened }, limit)
    }
}

impl Report {
    /// Keeps only the position, without words of the line: the process may read the file, but
    /// perhaps the user of the process may not.
    pub(crate) fn withheld(self) -> Report {
        let place = self.place.map(|place| Place {
            text: String::new(),
            ..*place
        });
        Report {
            slug: self.slug,
            message: "a mistake in a file that is not for all users: the line is not shown".into(),
            place: place.map(Box::new),
            hint: Some("read the file as its owner".into()),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(usize::MAX))
    }
}

impl std::error::Error for Report {}

/// A mistake in a text. Only the caller knows the place of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The name of the error's section in docs/errors.md.
    pub slug: &'static str,
    /// The byte of the text under which the caret stands.
    pub offset: usize,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

impl Fault {
    /// A fault at the text's first byte, with no hint.
    pub fn new(slug: &'static str, message: impl Into<String>) -> Fault {
        Fault {
            slug,
            offset: 0,
            message: message.into(),
            hint: None,
        }
    }

    /// Adds a hint.
    pub fn hint(self, hint: impl Into<String>) -> Fault {
        Fault {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// Adds a hint: the similar name `name`, or `otherwise` if no name is similar.
    pub fn nearest(self, name: Option<String>, otherwise: impl Into<String>) -> Fault {
        match name {
            Some(name) => self.hint(did_you_mean(&name)),
            None => self.hint(otherwise),
        }
    }

    /// Moves the fault into a longer text, in which the fault's own text begins at byte `base`.
    pub fn shift(self, base: usize) -> Fault {
        Fault {
            offset: self.offset + base,
            ..self
        }
    }

    /// The report of the fault, in line `line` of `source`.
    pub fn at(self, source: &str, line: usize, text: &str) -> Report {
        let place = Place::new(source, line, text, self.offset);
        self.report(place)
    }

    /// The report of the fault at this place.
    pub fn report(self, place: Place) -> Report {
        Report {
            place: Some(Box::new(place)),
            ..self.unplaced()
        }
    }

    /// The report of the fault without a place.
    pub fn unplaced(self) -> Report {
        Report {
            slug: self.slug,
            message: self.message,
            place: None,
            hint: self.hint,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.hint.iter().try_for_each(|hint| write!(f, "; {hint}"))
    }
}

impl std::error::Error for Fault {}

/// The hint that proposes the name `name`.
pub fn did_you_mean(name: &str) -> String {
    format!("did you mean '{name}'?")
}

/// The name that a hint of [`did_you_mean`] proposes; `None` for other hints.
pub fn proposed(hint: &str) -> Option<&str> {
    hint.strip_prefix("did you mean '")?.strip_suffix("'?")
}

/// The byte at which `part`, a slice of `text`, begins.
pub fn offset_in(text: &str, part: &str) -> usize {
    part.as_ptr().addr() - text.as_ptr().addr()
}

/// Makes foreign text, such as the name of an application or a device, safe to print. Replaces
/// characters that control a terminal or are invisible.
pub fn harmless_text(text: &str) -> String {
    text.chars().map(harmless).collect()
}

/// Replaces a character that controls a terminal or is invisible by one visible character, so that
/// the caret stays under the right column.
fn harmless(c: char) -> char {
    match c {
        '\t' => ' ',
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => '?',
        '\u{feff}' => '?',
        c if c.is_control() => '?',
        c => c,
    }
}

/// Shortens the longest words of a text of more than `limit` bytes in their middle, until it fits
/// or no word is long. Such words are paths and the values of variables. The text around them says
/// what to do.
pub fn with_short_words(text: &str, limit: usize) -> String {
    let mut text = text.to_owned();
    while text.len() > limit {
        let words = text.split(char::is_whitespace);
        let longest = words.max_by_key(|word| word.len()).unwrap_or_default();
        let short = shorten(longest);
        if short.len() >= longest.len() {
            break;
        }
        text = text.replacen(longest, &short, 1);
    }
    text
}

/// Shortens a long path in the middle.
pub(crate) fn shorten(source: &str) -> String {
    let count = source.chars().count();
    if count <= SOURCE_HEAD + ELLIPSIS.len() + SOURCE_TAIL {
        return source.to_owned();
    }
    let head: String = source.chars().take(SOURCE_HEAD).collect();
    let tail: String = source.chars().skip(count - SOURCE_TAIL).collect();
    format!("{head}{ELLIPSIS}{tail}")
}

/// Cuts the text to at most `limit` bytes, between two characters.
fn cut(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        let room = limit.saturating_sub(ELLIPSIS.len());
        let ends = text.char_indices().map(|(at, _)| at);
        let end = ends.take_while(|at| *at <= room).last().unwrap_or(0);
        text.truncate(end);
        text.push_str(&ELLIPSIS[..ELLIPSIS.len().min(limit)]);
    }
    text
}

const ELLIPSIS: &str = "...";
const EXCERPT_MIN: usize = 12;
const EXCERPT_MAX: usize = 72;
const SOURCE_HEAD: usize = 10;
const SOURCE_TAIL: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str, offset: usize) -> Report {
        Fault::new("slug", "unknown mode 'hsah'")
            .hint("did you mean 'hash'?")
            .shift(offset)
            .at("/etc/pcap.conf", 3, text)
    }

    #[test]
    fn long_words_give_way_to_the_advice() {
        let path = format!("/etc/{}/pcap.conf:3", "directory/".repeat(30));
        let text = format!("waiting for it ({path}) needs CAP_NET_RAW (tcpdump: -Z root)");
        let short = with_short_words(&text, 255);
        let expected = "waiting for it (/etc/dire...ectory//pcap.conf:3) needs CAP_NET_RAW \
                        (tcpdump: -Z root)";
        assert_eq!(short, expected);
        assert_eq!(with_short_words(&text, text.len()), text);
        let both = with_short_words(&format!("{path} {path}"), 100);
        assert_eq!(both.matches("...").count(), 2, "{both}");
        let words = "word ".repeat(60);
        assert_eq!(with_short_words(&words, 255), words);
    }

    #[test]
    fn a_report_has_position_line_and_caret() {
        let expected = "/etc/pcap.conf:3:10: unknown mode 'hsah'; did you mean 'hash'?\n\
                        fanout = hsah\n         ^";
        assert_eq!(report("fanout = hsah", 9).render(255), expected);
        assert_eq!(report("fanout = hsah", 9).to_string(), expected);
    }

    #[test]
    fn a_long_line_is_cut_around_the_caret() {
        let text = format!("{} hsah {}", "é".repeat(500), "ü".repeat(500));
        let rendered = report(&text, 1001).render(255);
        let lines: Vec<&str> = rendered.lines().collect();
        assert!(rendered.len() <= 255, "{rendered}");
        assert_eq!(lines.len(), 3);
        assert!(
            lines[1].starts_with("...é") && lines[1].ends_with("ü..."),
            "{rendered}"
        );
        let caret = lines[2].chars().count() - 1;
        assert_eq!(lines[1].chars().nth(caret), Some('h'), "{rendered}");
    }

    #[test]
    fn a_long_path_loses_its_middle_before_the_excerpt_goes() {
        let mut long = report("fanout = hsah", 9);
        let path = format!("/home/{}/pcap.conf", "d".repeat(170));
        long.place.as_mut().unwrap().source = path;
        let rendered = long.render(255);
        assert!(
            rendered.starts_with("/home/dddd...dddddddddd/pcap.conf:3:10: "),
            "{rendered}"
        );
        assert!(
            rendered.ends_with("\nfanout = hsah\n         ^"),
            "{rendered}"
        );
    }

    #[test]
    fn every_limit_is_kept_between_characters() {
        for limit in 0..300 {
            let mut report = report("\u{1f980}\u{1f980}\u{1f980} = \u{1f980}", 4);
            report.message = "\u{1f980}".repeat(30);
            assert!(report.render(limit).len() <= limit, "limit {limit}");
        }
    }

    #[test]
    fn without_room_the_excerpt_goes_first() {
        let rendered = report("fanout = hsah", 9).render(70);
        assert_eq!(
            rendered,
            "/etc/pcap.conf:3:10: unknown mode 'hsah'; did you mean 'hash'?"
        );
    }

    #[test]
    fn terminals_are_not_attacked_and_tabs_keep_the_caret() {
        let mut bad = report("\tfan\u{1b}[2J\u{202e}\u{9b}x", 1);
        bad.message = "odd \u{7} bell".to_owned();
        let rendered = bad.render(255);
        assert!(
            rendered.starts_with("/etc/pcap.conf:3:2: odd ? bell; "),
            "{rendered}"
        );
        assert!(rendered.ends_with("\n fan?[2J??x\n ^"), "{rendered}");
    }

    #[test]
    fn the_proposed_name_is_read_back() {
        let fault = Fault::new("slug", "wrong").nearest(Some("it's".to_owned()), "");
        assert_eq!(proposed(&fault.hint.unwrap()), Some("it's"));
        let several = "did you mean 'flow', or 'hash' (without CAP_BPF)?";
        for hint in ["write it as in ring@eth0", several] {
            assert_eq!(proposed(hint), None);
        }
    }

    #[test]
    fn quotes_are_short() {
        assert_eq!(quote("hash"), "'hash'");
        assert_eq!(quote(&"é".repeat(100)), format!("'{}...'", "é".repeat(32)));
    }
}
