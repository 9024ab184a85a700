//! Writes a tree in the language. The tree may be the rest of a steering program from which a part
//! was removed.

mod steer;
mod predicate;

use fanpcap_steer::ir::{Function, Header, Predicate, Tree};

/// The text of the tree, with one line for each function of the top sequence.
pub(super) fn lines(program: &Tree) -> Vec<String> {
    let writer = Writer(program);
    let one = std::slice::from_ref(&program.main);
    let functions = if let Function::Sequence(functions) = &program.main {
        functions
    } else {
        one
    };
    functions.iter().map(|it| writer.bare(it)).collect()
}

/// Writes parts of the tree. The tree holds the sets and filters that the parts use.
struct Writer<'a>(&'a Tree);

impl Writer<'_> {
    fn argument(&self, function: &Function) -> String {
        let text = self.bare(function);
        if text.contains(' ') {
            format!("({text})")
        } else {
            text
        }
    }

    fn bare(&self, function: &Function) -> String {
        match function {
            Function::Pass => "unit".to_owned(),
            Function::Drop => "drop".to_owned(),
            Function::Sequence(functions) => {
                let each: Vec<String> = functions.iter().map(|it| self.bare(it)).collect();
                each.join(" >-> ")
            }
            Function::If(question, then, otherwise) => self.choice(question, then, otherwise),
            Function::First(functions) => {
                let number = match functions.len() {
                    2 => String::new(),
                    number => number.to_string(),
                };
                format!("par{number} {}", self.each(functions).join(" "))
            }
            Function::Inverse(function) => format!("inv {}", self.argument(function)),
            Function::Inner(function) => format!("inner {}", self.argument(function)),
            Function::Steer(by) => steer::text(by),
            Function::Broadcast => "broadcast".to_owned(),
            Function::Classify(class) => format!("classify {class}"),
            Function::Host(false) => "kernel".to_owned(),
            Function::Host(true) => "detour".to_owned(),
            Function::Mark(value) => format!("mark {value}"),
            Function::Count(counter, by) => count(*counter, *by),
            Function::SetState(state) => format!("put_state {state}"),
            Function::Sample { keep, of, .. } => format!("sample {keep} {of}"),
        }
    }

    fn each(&self, functions: &[Function]) -> Vec<String> {
        functions.iter().map(|it| self.argument(it)).collect()
    }

    fn choice(&self, question: &Predicate, then: &Function, otherwise: &Function) -> String {
        let p = || self.predicate(question);
        match (then, otherwise) {
            // The language has no predicate for `Header::Link`, but it has this filter.
            (Function::Pass, Function::Drop) if *question == Predicate::Has(Header::Link) => {
                "vlan_or_untagged".to_owned()
            }
            (Function::Pass, Function::Drop) => format!("filter {}", p()),
            (then, Function::Pass) => format!("when {} {}", p(), self.argument(then)),
            (Function::Pass, otherwise) => {
                format!("unless {} {}", p(), self.argument(otherwise))
            }
            (then, otherwise) => {
                let (f, g) = (self.argument(then), self.argument(otherwise));
                format!("conditional {} {f} {g}", p())
            }
        }
    }
}

fn count(counter: u8, by: i64) -> String {
    let name = if by < 0 { "dec" } else { "inc" };
    let once = format!("{name} {counter}");
    vec![once; usize::try_from(by.unsigned_abs()).unwrap_or(1).max(1)].join(" >-> ")
}

#[cfg(test)]
mod tests {
    use fanpcap_bpf::Classic;
    use fanpcap_steer::parts::Parts;
    use fanpcap_steer::{modes, table, tree};

    use super::*;

    fn compiled(source: &str) -> Tree {
        let program = tree(source, &|_| Ok(vec![Classic::keep(u32::MAX)]));
        program.unwrap_or_else(|error| panic!("{}", error.render(source)))
    }

    /// The tree as text. The text does not show how operands of an operator were grouped.
    #[allow(clippy::wildcard_enum_match_arm, reason = "all others are leaves")]
    fn joined(function: &Function) -> String {
        let all = |parts: &[Function]| parts.iter().map(joined).collect::<Vec<_>>().join(";");
        match function {
            Function::Sequence(parts) => format!("sequence[{}]", all(parts)),
            Function::First(parts) => format!("first[{}]", all(parts)),
            Function::If(question, then, otherwise) => {
                format!(
                    "if[{}|{}|{}]",
                    operands(question),
                    joined(then),
                    joined(otherwise)
                )
            }
            Function::Inverse(part) => format!("inverse[{}]", joined(part)),
            Function::Inner(part) => format!("inner[{}]", joined(part)),
            leaf => format!("{leaf:?}"),
        }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "all others are leaves")]
    fn operands(predicate: &Predicate) -> String {
        let (name, parts) = match predicate {
            Predicate::Or(one, other) => ("or", [one, other]),
            Predicate::Xor(one, other) => ("xor", [one, other]),
            Predicate::And(one, other) => ("and", [one, other]),
            Predicate::Not(part) => return format!("not[{}]", operands(part)),
            leaf => return format!("{leaf:?}"),
        };
        let inside = |part: &Predicate| {
            let text = operands(part);
            let same = text
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix('['));
            same.and_then(|rest| rest.strip_suffix(']'))
                .unwrap_or(&text)
                .to_owned()
        };
        format!("{name}[{}]", parts.map(|part| inside(part)).join(";"))
    }

    /// The written text compiles to an equal tree. Only the numbers of sets and filters may differ.
    fn means_the_same(program: &Tree) {
        let again = compiled(&format!("main = do\n  {}", lines(program).join("\n  ")));
        assert_eq!(lines(&again), lines(program));
        if program.sets.len() < 2 && program.filters.len() < 2 {
            assert_eq!(
                joined(&again.main),
                joined(&program.main),
                "{:?}",
                lines(program)
            );
        }
    }

    #[test]
    fn all_functions_of_the_table_are_written_as_what_they_mean() {
        let examples = table::entries().map(|entry| entry.example);
        for source in examples.chain(modes::MODES.map(|(_, source)| source)) {
            let program = compiled(source);
            means_the_same(&program);
            if let Ok(parts) = Parts::of(&program) {
                means_the_same(parts.steering());
                parts.filtering().into_iter().for_each(means_the_same);
            }
        }
    }

    #[test]
    fn operators_have_the_parentheses_that_they_need() {
        for source in [
            "filter ((is_tcp .||. is_udp) .&&. not (has_port 80 .&&. has_vlan))",
            "filter (is_tcp .||. is_udp .&&. ip_ttl .< 3 .^^. has_vlan)",
            "filter ((is_tcp .^^. is_udp) .&&. (ip_ttl .< 3 .||. has_vlan))",
            "when (not (ip_ttl .< 3)) (inc 1 >-> dec 2) >-> steer_flow",
            "conditional is_tcp (par tcp udp >-> steer_p2p) (inner (inv ip))",
        ] {
            means_the_same(&compiled(source));
        }
    }

    #[test]
    fn sets_are_short() {
        let text = |source| lines(&compiled(source)).join("");
        let ranges = text("filter (vlan_id [1..100, 200, 201, 4000..4002])");
        assert_eq!(ranges, "filter (vlan_id [1..100, 200, 201, 4000..4002])");
        let behind = text("filter (vlan_id [3..9, 1])");
        assert_eq!(behind, "filter (vlan_id [3..9, 1])");
        let odd: Vec<String> = (0..100).map(|n| (2 * n + 1).to_string()).collect();
        let cut = text(&format!("filter (vlan_id [{}])", odd.join(", ")));
        assert!(cut.ends_with("29, 31 {- and 84 more -}])"), "{cut}");
    }
}
