//! The outermost lines of a steering program: definitions, and the other lines of PFQ's programs.

use super::Parser;
use super::layout::{Boundary, Context};
use super::operator;
use crate::Error;
use crate::ast::{Definition, Expression, Module};
use crate::error::quote;
use crate::lexer::Lexeme;
use crate::limits::PARAMETERS_MAX;
use crate::table;

impl<'a> Parser<'a> {
    pub(super) fn module(&mut self) -> Result<Module<'a>, Error> {
        self.margin = self.token().column;
        let (indent, item) = (self.margin, self.at);
        self.within(Context::Block { indent, item }, |parser| {
            let mut program = Module {
                definitions: Vec::new(),
                modules: Vec::new(),
                span: 0..parser.source.len(),
            };
            while parser.token().kind != Lexeme::End {
                parser.line(&mut program)?;
            }
            Ok(program)
        })
    }

    /// Reads a definition, a signature, an import or a bare expression.
    fn line(&mut self, program: &mut Module<'a>) -> Result<(), Error> {
        self.begin_item();
        if self.taken(';') {
            return Ok(());
        }
        if self.is_word("module") {
            return self.header();
        }
        if self.is_word("import") {
            return self.import(program);
        }
        if self.defines(self.at) {
            if let Some(definition) = self.definition()? {
                self.add(program, definition)?;
            }
        } else {
            let bare = self.bare(program)?;
            self.add(program, bare)?;
        }
        self.end_of_line(program)
    }

    fn end_of_line(&mut self, program: &Module<'a>) -> Result<(), Error> {
        if !self.goes_on() || self.token().kind == Lexeme::Mark(';') {
            return Ok(());
        }
        let error = self.expected("an operator or the end of the definition");
        let is_block = program.definitions.last().is_some_and(|last| {
            let begins = &self.source[last.body.span.clone()];
            begins.starts_with("do")
        });
        Err(if is_block {
            error.or_hint("the lines of a 'do' block begin in the same column")
        } else {
            error
        })
    }

    /// `name parameters = body`, or a signature, which the checker does not need.
    fn definition(&mut self) -> Result<Option<Definition<'a>>, Error> {
        let start = self.at;
        if matches!(self.token().kind, Lexeme::Name(name) if is_reserved(name)) {
            return Err(self.expected("a definition's name"));
        }
        let mut names = Vec::new();
        while let Lexeme::Name(name) = self.token().kind {
            names.push(name);
            self.take();
        }
        if !self.is_symbol("=") {
            self.signature()?;
            return Ok(None);
        }
        self.ensure_new(names[0], start)?;
        let (name, parameters) = (names[0], names.split_off(1));
        self.few_and_different(&parameters, start + 1)?;
        self.take();
        let body = self.expression()?;
        Ok(Some(Definition {
            name,
            span: self.tokens[start].span.clone(),
            parameters,
            body,
        }))
    }

    /// Skips the rest of `a, b :: Type`.
    fn signature(&mut self) -> Result<(), Error> {
        while self.taken(',') {
            self.take();
        }
        self.take();
        if !self.goes_on() || self.token().kind == Lexeme::Mark(';') {
            return Err(self.expected("a type after '::'"));
        }
        self.rest_of_line();
        Ok(())
    }

    /// Refuses a definition of a name that a function of the language already has. `start` is the
    /// index of the name's token.
    fn ensure_new(&self, name: &str, start: usize) -> Result<(), Error> {
        if table::find(name).is_none() {
            return Ok(());
        }
        let span = self.tokens[start].span.clone();
        let name = quote(name);
        let message = format!("expected a new name, found {name}, which is a name of the language");
        Err(Error::new(span, message).hint("give the definition another name"))
    }

    /// Refuses a definition that has too many parameters, or the same parameter twice. `start` is
    /// the index of the first parameter's token.
    fn few_and_different(&self, parameters: &[&str], start: usize) -> Result<(), Error> {
        let count = parameters.len();
        if count > PARAMETERS_MAX {
            let span = self.tokens[start + PARAMETERS_MAX].span.clone();
            let message = format!("expected at most {PARAMETERS_MAX} parameters, found {count}");
            return Err(Error::new(span, message));
        }
        let twice = (1..parameters.len()).find(|at| parameters[..*at].contains(&parameters[*at]));
        if let Some(at) = twice.filter(|at| parameters[*at] != "_") {
            let span = self.tokens[start + at].span.clone();
            let message = format!(
                "expected another name, found the parameter {} twice",
                quote(parameters[at])
            );
            return Err(Error::new(span, message));
        }
        Ok(())
    }

    /// Reads an expression without a name, which is the steering program itself.
    fn bare(&mut self, program: &Module<'a>) -> Result<Definition<'a>, Error> {
        let span = self.token().span.clone();
        let is_first = program.definitions.is_empty();
        let what = if is_first {
            "a program"
        } else {
            "a definition, 'name = ...'"
        };
        if program.definitions.iter().any(|known| known.name == MAIN) {
            let error = self.expected("a definition, 'name = ...', or the end of the program");
            return Err(error.hint("the lines of a block follow 'do', or are joined by '>->'"));
        }
        if self.token().column != self.margin && self.token().first {
            let error = self.expected(&format!("{what}, in column {}", self.margin));
            return Err(error);
        }
        let body: Expression<'a> = self.expression()?;
        Ok(Definition {
            name: MAIN,
            span,
            parameters: Vec::new(),
            body,
        })
    }

    fn add(&self, program: &mut Module<'a>, definition: Definition<'a>) -> Result<(), Error> {
        let known = program
            .definitions
            .iter()
            .find(|known| known.name == definition.name);
        if let Some(known) = known {
            let (line, _) = Error::new(known.span.clone(), "").position(self.source);
            let message = format!(
                "expected a new name, found a second definition of {}",
                quote(definition.name)
            );
            let error = Error::new(definition.span, message);
            return Err(error.hint(format!("the first one is in line {line}")));
        }
        program.definitions.push(definition);
        Ok(())
    }

    /// `module Name (exports) where`
    fn header(&mut self) -> Result<(), Error> {
        let span = self.token().span.clone();
        while !matches!(self.token().kind, Lexeme::Name("where") | Lexeme::End) {
            self.take();
        }
        if self.token().kind == Lexeme::End {
            let message = "expected 'where' after the module's name, found the end of the program";
            return Err(Error::new(span, message));
        }
        self.take();
        Ok(())
    }

    /// `import qualified Name as N hiding (names)`. The names of PFQ's own modules need no import.
    fn import(&mut self, program: &mut Module<'a>) -> Result<(), Error> {
        self.take();
        self.pass_word("qualified");
        let span = self.token().span.clone();
        self.pass_name("a module's name")?;
        let module = &self.source[span];
        self.pass_word("qualified");
        if self.pass_word("as") {
            self.pass_name("a name after 'as'")?;
        }
        let lists = self.pass_word("hiding");
        if lists && self.peek() != Some(&Lexeme::Mark('(')) {
            return Err(self.expected("names in brackets after 'hiding'"));
        }
        let is_over = !self.goes_on() || matches!(self.token().kind, Lexeme::Mark(';' | '('));
        if !is_over {
            return Err(self.expected("names in brackets, or the end of the import"));
        }
        self.rest_of_line();
        let own = ["Network.PFQ", "Network.PFq", "Prelude", "Data."];
        if !own.iter().any(|own| module.starts_with(own)) {
            program.modules.push(module);
        }
        Ok(())
    }

    fn pass_word(&mut self, word: &str) -> bool {
        let is_next = self.is_word(word);
        if is_next {
            self.take();
        }
        is_next
    }

    fn pass_name(&mut self, what: &str) -> Result<(), Error> {
        if !matches!(self.peek(), Some(Lexeme::Name(_))) {
            return Err(self.expected(what));
        }
        self.take();
        Ok(())
    }

    /// Skips the rest of a line and its continuation lines.
    fn rest_of_line(&mut self) {
        while self.boundary() == Boundary::No && self.token().kind != Lexeme::Mark(';') {
            self.take();
        }
    }
}

pub(super) fn is_reserved(name: &str) -> bool {
    operator::is_keyword(name) || foreign(name).is_some()
}

/// A hint for a word of Haskell that this language does not have.
pub(super) fn foreign(name: &str) -> Option<String> {
    let hint = match name {
        "let" | "where" | "in" => "write it as a separate definition: 'web = has_port 80'",
        "case" | "of" => "write 'if p then f else g'",
        "import" | "module" => "write it in a separate line",
        "data" | "type" | "newtype" | "class" | "instance" | "deriving" => {
            "the language has only the types that fanpcap-lang(7) lists"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

/// The name of the definition that is the steering program.
pub(crate) const MAIN: &str = "main";
