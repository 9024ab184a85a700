//! Properties of the compiler over generated programs. The variable PROPTEST_CASES sets the number
//! of programs.

use fanpcap_bpf::Classic;
use fanpcap_steer::ir::Tree;
use fanpcap_steer::{Error, NODES_MAX, table, tree};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

fn compiled(source: &str) -> Result<Tree, Error> {
    tree(source, &|text| match text.len() % 3 {
        0 => Err("syntax error".to_owned()),
        1 => Ok(vec![Classic::keep(0)]),
        _ => Ok(vec![Classic::keep(1), Classic::keep(0)]),
    })
}

/// The source compiles, or the compiler refuses it with a position in the source and an error that
/// can be shown.
fn holds(source: &str) {
    let Err(error) = compiled(source) else { return };
    assert!(
        source.get(error.span.clone()).is_some(),
        "{source:?}: {error:?}"
    );
    let (line, column) = error.position(source);
    let text = source.split('\n').nth(line - 1).unwrap_or_default();
    assert!(column <= text.chars().count() + 1, "{source:?}: {error:?}");
    let rendered = error.render(source);
    assert!(
        rendered.starts_with(&format!("{line}:{column}: expected ")),
        "{rendered}"
    );
    assert!(
        rendered.contains(", found ") && rendered.ends_with('^'),
        "{rendered}"
    );
    assert_eq!(rendered.lines().count(), 3, "{rendered}");
}

const WORDS: [&str; 58] = [
    "main",
    "=",
    "do",
    "if",
    "then",
    "else",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ";",
    "`",
    "$",
    "-",
    "..",
    "::",
    ">->",
    ".&&.",
    ".||.",
    ".^^.",
    ".<",
    "./=",
    ">=.",
    "<>",
    "=",
    "\n",
    "\n  ",
    "\n    ",
    "\t",
    "--",
    "{-",
    "-}",
    "\"tcp\"",
    "\"10.0.0.0/8\"",
    "\"",
    "\\",
    "0",
    "1",
    "80",
    "0x1f",
    "99999999999999999999",
    "10.0.0.0/8",
    "2001:db8::/32",
    "::",
    "f",
    "g",
    "x",
    "import",
    "module",
    "where",
    "let",
    "\u{e9}",
    "\u{1f980}",
    "sample",
    "inner",
];

fn names() -> Vec<&'static str> {
    table::entries()
        .flat_map(table::Entry::names)
        .chain(
            table::REFUSED
                .iter()
                .flat_map(|refused| refused.names.iter().copied()),
        )
        .collect()
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => select(WORDS.to_vec()).prop_map(str::to_owned),
        3 => select(names()).prop_map(str::to_owned),
        1 => "[ -~]{1,3}",
        1 => any::<char>().prop_map(String::from),
    ]
}

/// An expression that is mostly well-formed, though not always well-typed.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        4 => select(names()).prop_map(str::to_owned),
        2 => select(table::entries().map(|entry| format!("({})", entry.example.trim_start_matches("main = "))).collect::<Vec<_>>()),
        1 => any::<u16>().prop_map(|number| number.to_string()),
        1 => select(vec!["\"tcp\"", "10.0.0.0/8", "[1..3]", "f", "x", "(\"10.0.0.0\", 8)"]).prop_map(str::to_owned),
    ];
    leaf.prop_recursive(6, 48, 5, |inner| {
        let operator = select(vec![
            ">->", ".&&.", ".||.", ".^^.", ".<", "<.", "<>", "`par`",
        ]);
        prop_oneof![
            (inner.clone(), operator, inner.clone())
                .prop_map(|(a, operator, b)| format!("{a} {operator} {b}")),
            (select(names()), vec(inner.clone(), 1..4))
                .prop_map(|(name, given)| format!("({name} ({}))", given.join(") ("))),
            vec(inner.clone(), 1..5).prop_map(|lines| format!("(do {{ {} }})", lines.join("; "))),
            vec(inner.clone(), 1..5)
                .prop_map(|lines| format!("do\n      {}\n", lines.join("\n      "))),
            (inner.clone(), inner.clone(), inner)
                .prop_map(|(p, f, g)| format!("if {p} then {f} else {g}")),
        ]
    })
}

fn function() -> impl Strategy<Value = String> {
    let of = |gives| {
        let entries =
            table::entries().filter(move |entry| entry.gives == gives && entry.takes.is_empty());
        select(entries.map(|entry| entry.name).collect::<Vec<_>>())
    };
    let question = of(table::Type::Predicate)
        .prop_map(str::to_owned)
        .prop_recursive(4, 16, 2, |inner| {
            let operator = select(vec![".&&.", ".||.", ".^^."]);
            prop_oneof![
                (inner.clone(), operator, inner.clone())
                    .prop_map(|(a, operator, b)| format!("({a} {operator} {b})")),
                inner.prop_map(|p| format!("(not {p})")),
            ]
        });
    of(table::Type::Function)
        .prop_map(str::to_owned)
        .prop_recursive(6, 48, 4, move |inner| {
            prop_oneof![
                vec(inner.clone(), 1..5).prop_map(|parts| format!("({})", parts.join(" >-> "))),
                (question.clone(), inner.clone()).prop_map(|(p, f)| format!("(when {p} {f})")),
                (question.clone(), inner.clone(), inner.clone())
                    .prop_map(|(p, f, g)| format!("(if {p} then {f} else {g})")),
                (inner.clone(), inner.clone()).prop_map(|(f, g)| format!("(par {f} $ {g})")),
                inner.prop_map(|f| format!("(src do {f})")),
            ]
        })
}

proptest! {
    #[test]
    fn any_words_are_compiled_or_refused_with_a_place(words in vec(word(), 0..40), blank in select(vec!["", " "])) {
        holds(&words.join(blank));
    }

    #[test]
    fn any_expression_is_compiled_or_refused_with_a_place(main in expression(), f in expression()) {
        holds(&format!("f x = {f}\nmain = {main}\n"));
        holds(&main);
    }

    #[test]
    fn well_typed_functions_compile_and_a_definition_of_a_part_changes_nothing(one in function(), other in function()) {
        let whole = compiled(&format!("main = {one} >-> {other}")).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let parts = compiled(&format!("main = do\n  a\n  b {other}\nb x = x\na = {one}"));
        prop_assert_eq!(parts, Ok(whole));
    }

    #[test]
    fn a_program_that_is_cut_or_changed_is_compiled_or_refused(main in function(), at in any::<prop::sample::Index>(), put in word()) {
        let source = format!("main = {main}");
        let at = at.index(source.len());
        if source.is_char_boundary(at) {
            holds(&source[..at]);
            holds(&format!("{}{put}{}", &source[..at], &source[at..]));
        }
    }

    #[test]
    fn definitions_in_definitions_come_to_an_end(calls in vec((0_usize..6, 0_usize..6, select(vec![">->", "`par`"])), 1..7)) {
        let mut source = "f0 x = x\n".to_owned();
        for (at, (f, g, operator)) in calls.iter().enumerate() {
            let (f, g) = ((*f).min(at), (*g).min(at));
            source += &format!("f{} x = f{} (f{} x) {operator} f{} x\n", at + 1, at - f.min(at), at - g.min(at), at);
        }
        source += &format!("main = f{} tcp\n", calls.len());
        holds(&source);
        if let Ok(program) = compiled(&source) {
            let filters = format!("{:?}", program.main).matches("If(").count();
            prop_assert!(filters <= NODES_MAX);
        }
    }
}
