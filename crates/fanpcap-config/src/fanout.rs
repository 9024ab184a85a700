//! The ways to share a group's packets, as settings and calls write them: a kernel mode, or a
//! steering program.

use crate::mode::options::{self, Options};
use crate::mode::{self, Mode, ModeKind};
use crate::report::{Fault, Report, offset_in, shorten};
use crate::source::{PROGRAM_MAX, Source};
use fanpcap_linux::file::directory;
use fanpcap_steer::{GroupOptions, modes};
use std::fs;
use std::io::{self, Read};
use std::path::Path;

/// The requested way to share packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fanout {
    /// A mode of the kernel.
    Mode(Mode),
    /// A steering program.
    Program(Script),
}

/// A requested steering program, not compiled yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    written: Written,
    source: Source,
    options: Options,
}

/// The form in which a steering program is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    Text,
    File,
    /// By the name of a mode that is a steering program.
    Named(&'static str),
}

impl Fanout {
    /// Parses a mode, a steering program, or `file:PATH`.
    ///
    /// # Errors
    /// A mistake in a mode, with its byte. Steering programs are not parsed yet.
    pub fn parse(source: Source) -> Result<Self, Fault> {
        let text = source.text();
        let (written, of) = if let Some(path) = path(text) {
            (Written::File, offset_in(text, path) + path.len())
        } else if is_program(text) {
            return Ok(Self::Program(Script::of_text(source)));
        } else if let Some(name) = named(text) {
            (Written::Named(name), 0)
        } else {
            return Mode::parse(text).map(Self::Mode);
        };
        let options = Options::parse(ModeKind::Program, &text[of..]);
        let mut options = options.map_err(|fault| fault.shift(of))?;
        options.class = options.class.map(|(class, at)| (class, of + at));
        Ok(Self::Program(Script {
            written,
            source,
            options,
        }))
    }
}

impl Script {
    /// A steering program by its text.
    pub fn of_text(source: Source) -> Self {
        Self {
            written: Written::Text,
            source,
            options: Options::of(ModeKind::Program),
        }
    }

    /// The steering program of groups for which no mode is given.
    pub fn default_mode() -> Self {
        Self::of_title(DEFAULT)
    }

    /// The steering program with this title. The title is a mode's name with options, or the
    /// group's options and the whole text, as `Script::whole` writes them.
    pub fn of_title(title: &str) -> Self {
        let source = |text| Source::new("the group", text);
        if named(title).is_some() {
            if let Ok(Fanout::Program(script)) = Fanout::parse(source(title)) {
                return script;
            }
        }
        let (options, text) = match title.split_once(' ') {
            Some((options, text)) if options.starts_with('+') => (options, text),
            _ => ("", title),
        };
        let mut script = Self::of_text(source(text));
        if let Ok(options) = Options::parse(ModeKind::Program, options) {
            script.options.group = options.group;
        }
        script
    }

    /// The mode, with its options.
    pub fn mode(&self) -> Mode {
        self.options.mode
    }

    /// The weight of the member that asks for the steering program, if one is given.
    pub fn weight(&self) -> Option<u16> {
        self.options.weight
    }

    /// The class of the member that asks for the steering program, 1 to 63; `None`: the default
    /// class.
    pub fn class(&self) -> Option<u8> {
        self.options.class.map(|(class, _)| class)
    }

    /// The report of a fault in the option that gives the class.
    pub(crate) fn blame_class(&self, fault: Fault) -> Report {
        self.blame(fault.shift(self.options.class.map_or(0, |(_, at)| at)))
    }

    /// The group's options, for example whether the group is sticky, and whether it is balanced.
    pub fn options(&self) -> GroupOptions {
        self.options.group
    }

    /// Returns the text of the steering program. Reads the text from the file if the steering
    /// program is given by a file.
    ///
    /// # Errors
    /// The file can't be read.
    pub(crate) fn load(&self) -> Result<Source, Report> {
        match self.written {
            Written::Text => Ok(self.source.clone()),
            Written::Named(name) => {
                let text = modes::source(name).unwrap_or_default();
                Ok(Source::new(name, text))
            }
            Written::File => {
                let text = self.source.text();
                let path = path(text).unwrap_or_default();
                let at = offset_in(text, path);
                read(path).map_err(|fault| self.source.blame(fault.shift(at)))
            }
        }
    }

    /// Returns the title for messages: the name, or the beginning of the text in one line, with the
    /// group's options.
    pub(crate) fn title(&self, text: &str) -> String {
        let options = options::group_text(self.options.group);
        match self.written {
            Written::Named(name) => format!("{name}{options}"),
            Written::Text | Written::File => {
                let words = text.split_whitespace();
                // The options precede the text, because a long text is cut at its end.
                let words = Some(options.as_str()).into_iter().chain(words);
                words.collect::<Vec<_>>().join(" ").trim_start().to_owned()
            }
        }
    }

    /// The setting `file:PATH` with its options; `None` if the steering program is not from a file.
    pub(crate) fn file(&self) -> Option<&str> {
        (self.written == Written::File).then(|| self.source.text().trim())
    }

    /// The title with the whole text, which [`Script::of_title`] reads: the group's options, if it
    /// has any, and then `text`.
    pub(crate) fn whole(&self, text: &str) -> String {
        let mut whole = options::group_text(self.options.group);
        if !whole.is_empty() {
            whole.push(' ');
        }
        whole + text
    }

    /// The report of a fault that concerns the whole steering program.
    pub(crate) fn blame(&self, fault: Fault) -> Report {
        self.source.blame(fault)
    }
}

/// The path in `file:PATH`, without options; `None` for any other text.
fn path(text: &str) -> Option<&str> {
    let text = text.trim();
    let scheme = text.get(..FILE.len())?;
    let path = text[FILE.len()..].trim_start();
    let is_file = scheme.eq_ignore_ascii_case(FILE);
    is_file.then(|| path[..options::begin(path)].trim_end())
}

/// The name of the mode before options, if this mode is a steering program.
fn named(text: &str) -> Option<&'static str> {
    let head = text.split('+').next().unwrap_or_default().trim();
    mode::program_named(head)
}

/// Whether a text is meant as a steering program and not as a mode. The steering program may have
/// mistakes.
fn is_program(text: &str) -> bool {
    let head = text.split('+').next().unwrap_or_default().trim();
    let first = head.split_whitespace().next().unwrap_or_default();
    let is_mode = ModeKind::is_name(first) || mode::program_named(first).is_some();
    let marks = ["=", "(", "steer_"];
    let looks_like_one = head == "do"
        || head.contains(char::is_whitespace)
        || marks.iter().any(|mark| head.contains(mark));
    text.contains(">->") || (!is_mode && looks_like_one)
}

fn read(path: &str) -> Result<Source, Fault> {
    let name = shorten(path);
    let failed = |error: io::Error| {
        let message = format!("cannot read the program '{name}': {error}");
        Fault::new("program-unreadable", message)
            .hint("write file:PATH of a file that this user may read")
    };
    // Check this before the file is opened, because opening a pipe could block.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        let message = format!("'{name}' is not a regular file");
        return Err(Fault::new("program-not-a-file", message)
            .hint("write file:PATH of a file with a steering program"));
    }
    let file = directory::open_to_read(Path::new(path)).map_err(failed)?;
    let is_shown = directory::is_for_caller(&file.metadata().map_err(failed)?);
    let mut bytes = Vec::new();
    let limit = PROGRAM_MAX as u64 + 1;
    file.take(limit).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > PROGRAM_MAX {
        return Err(too_long());
    }
    Ok(Source::new(path, &String::from_utf8_lossy(&bytes)).shown(is_shown))
}

pub(crate) fn too_long() -> Fault {
    let message = format!("the program is longer than {PROGRAM_MAX} bytes");
    Fault::new("program-too-long", message).hint("shorten it")
}

const DEFAULT: &str = "flow";
const FILE: &str = "file:";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Fanout, Fault> {
        Fanout::parse(Source::new("test", text))
    }

    fn written(text: &str) -> Written {
        match parse(text).unwrap() {
            Fanout::Program(script) => script.written,
            Fanout::Mode(mode) => panic!("{text} is the mode {mode}"),
        }
    }

    #[test]
    fn programs_are_told_from_modes() {
        for text in [
            "tcp >-> steer_flow",
            "tcp>->steer_flow",
            "main = steer_flow",
            "main=steer_flow",
            "steer_flow",
            "double_steer_ip",
            "do",
            "when tcp",
            "main = do\n  tcp\n  steer_flow",
            "filter \"tcp[12] + 1 > 3\" >-> steer_flow",
        ] {
            assert_eq!(written(text), Written::Text, "{text}");
        }
        assert_eq!(written(" file:/etc/steer.pfq"), Written::File);
        assert_eq!(written("flow"), Written::Named("flow"));
        assert_eq!(written(" Flow + defrag"), Written::Named("flow"));
        for text in ["hash", "rr+rollover", "Hash + defrag"] {
            assert!(matches!(parse(text), Ok(Fanout::Mode(_))), "{text}");
        }
    }

    #[test]
    fn what_is_neither_is_refused_as_a_mode() {
        for (text, slug, offset) in [
            ("", "mode-empty", 0),
            ("+defrag", "mode-empty", 0),
            ("hash defrag", "option-without-plus", 5),
            ("flow defrag", "option-without-plus", 5),
            ("flow+sticky=1023", "option-number", 5),
            ("flow+sticky=16777217", "option-number", 5),
            ("flow+sticky=", "option-number", 5),
            ("flow+sticky+sticky=1024", "sticky-twice", 12),
            ("flow+balance=some", "balance-value", 5),
            ("flow+balance+balance=all", "balance-twice", 13),
            ("flow+balance=all+sticky", "balance-all-and-sticky", 17),
            ("hash+balance", "option-of-steered-groups", 5),
            ("flow+class=0", "option-number", 5),
            ("flow+class=2+class=3", "class-twice", 13),
            ("hash+class=2", "option-needs-xdp", 5),
            ("flow+defrag + rollover", "rollover-in-steered-group", 14),
            ("flow+weight", "option-number", 5),
            ("flow+weight=0", "option-number", 5),
            ("flow+weight=1001", "option-number", 5),
            ("flow+weight=2+weight=3", "weight-twice", 14),
            ("flow+wieght=3", "option-unknown", 5),
            (
                " file:steer.pfq + rollover",
                "rollover-in-steered-group",
                18,
            ),
            ("flwo", "mode-unknown", 0),
            ("tcp", "mode-unknown", 0),
        ] {
            let fault = parse(text).unwrap_err();
            assert_eq!((fault.slug, fault.offset), (slug, offset), "{text}");
        }
    }

    fn script(text: &str) -> Script {
        match parse(text).unwrap() {
            Fanout::Program(script) => script,
            Fanout::Mode(mode) => panic!("{text} is the mode {mode}"),
        }
    }

    #[test]
    fn a_named_program_has_options() {
        let script = script("flow+Weight = 3+defrag + Class = 63");
        assert_eq!(script.mode().to_string(), "program+defrag");
        assert_eq!((script.weight(), script.class()), (Some(3), Some(63)));
        assert_eq!(script.title("main = steer_flow"), "flow");
        assert_eq!(
            script.load().unwrap().text(),
            modes::source("flow").unwrap()
        );
    }

    #[test]
    fn a_title_that_says_all_is_read_back() {
        for (text, flows) in [
            ("flow_2_tuple", None),
            ("flow+sticky=1024", Some(1024)),
            ("flow+sticky+balance", Some(65_536)),
            ("+balance=all main = tcp", None),
            ("+sticky main = tcp >-> steer_flow", Some(65_536)),
            ("main = tcp >-> steer_flow", None),
        ] {
            let script = Script::of_title(text);
            assert_eq!(
                (script.options().flows, script.weight()),
                (flows, None),
                "{text}"
            );
            let loaded = script.load().unwrap();
            assert_eq!(script.title(loaded.text()), text);
            let again = Script::of_title(&script.whole(loaded.text()));
            assert_eq!(again.options(), script.options());
            assert_eq!(again.load().unwrap().text(), loaded.text());
        }
    }

    #[test]
    fn the_title_says_the_options_of_the_group() {
        for (text, sticky, title) in [
            ("flow", None, "flow"),
            ("flow +sticky", Some(65_536), "flow+sticky"),
            ("flow+Sticky = 65536+defrag", Some(65_536), "flow+sticky"),
            ("flow+sticky=1024", Some(1024), "flow+sticky=1024"),
            ("file:a +sticky", Some(65_536), "+sticky main = tcp"),
            ("flow+balance", None, "flow+balance"),
            ("flow+Balance = ALL", None, "flow+balance=all"),
            (
                "file:a+balance+sticky",
                Some(65_536),
                "+sticky+balance main = tcp",
            ),
            ("file:a", None, "main = tcp"),
        ] {
            let script = script(text);
            assert_eq!(script.options().flows, sticky, "{text}");
            assert_eq!(script.title("main =\n tcp"), title, "{text}");
        }
    }

    #[test]
    fn a_file_has_options_behind_its_path() {
        for (text, of, weight) in [
            ("file:a", "a", None),
            (" file: /x/a+b ", "/x/a+b", None),
            ("file:a+b + weight=1000", "a+b", Some(1000)),
            ("FILE:a+weight=2+defrag+weight=2", "a", Some(2)),
            ("file:a+defragment", "a+defragment", None),
        ] {
            assert_eq!(path(text), Some(of), "{text}");
            assert_eq!(script(text).weight(), weight, "{text}");
        }
    }

    #[test]
    fn a_programs_title_is_how_it_begins() {
        let script = Script::of_text(Source::new("x", "main = do\n   tcp\n  steer_flow\n"));
        let title = script.title(script.load().unwrap().text());
        assert_eq!(title, "main = do tcp steer_flow");
    }
}
