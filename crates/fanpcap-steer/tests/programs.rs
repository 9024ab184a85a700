//! Correct programs: those of PFQ's documentation, and all spellings of the same program.

use fanpcap_bpf::Classic;
use fanpcap_steer::ir::{
    Comparison, Filter, Flow, Function, Header, Key, Net, Predicate, Property, Side, Steer, Tree,
};
use fanpcap_steer::table::Described;
use fanpcap_steer::{modes, table, tree};
use std::collections::BTreeSet;

fn compiled(source: &str) -> Tree {
    let code = |text: &str| {
        let k = u32::try_from(text.len()).map_err(|error| error.to_string())?;
        Ok(vec![Classic::keep(k)])
    };
    tree(source, &code).unwrap_or_else(|error| panic!("{}", error.render(source)))
}

/// Programs from PFQ's manual, examples and tests, without functions that transmit or log.
const PFQ: [(&str, &str); 12] = [
    ("paper", "main = do\ntcp\nsteer_flow"),
    ("bird", "\n  main = do \n           ip\n           tcp\n \n"),
    ("literal", "main = steer_flow"),
    ("basic", "--\n-- basic\n--\n\nmain = when is_tcp drop\n"),
    (
        "conditional",
        "-- example\n--\n\nimport Network.PFQ.Lang.Prelude\n\n\
         cond_filter = par (when (not is_tcp) drop) (filter (ip_ttl .> 10))\n\n\
         main = if not is_tcp\n        then cond_filter\n        else filter (ip_ttl .> 10)\n",
    ),
    (
        "do-notation",
        "main = do\n    unit\n    shift $ do\n            inc 1\n            shift (do\n                udp\n                inc 2\n                )\n    ip\n",
    ),
    (
        "imports",
        "import Data.List -- comment\nimport qualified Data.Map -- comment\nimport qualified Data.Set as S  -- comment\n\nmain = unit\n",
    ),
    (
        "kleisli",
        "-- simple\n\nimport Network.PFQ.Lang.Default\n\nmain =\n    steer_flow >->\n      when is_tcp drop >-> kernel\n",
    ),
    (
        "module",
        "{-# LANGUAGE RebindableSyntax #-}\nmodule Lib.Filter\n  ( filterFunction\n  , main ) where\n\nimport Network.PFQ.Lang.Prelude (($), (>>))\n\n\
         filterFunction :: NetFunction\nfilterFunction = par ip ip\n\nmain = do\n    filterFunction\n    inc 0\n",
    ),
    (
        "test-lang",
        "comp = par (ip >-> udp) (ip >-> tcp) >-> steer_rtp >->\n                         Q.when is_tcp (inc 2) >->\n                         \
         addr \"192.168.0.0/24\" >->\n                         steer_local_link \"4c:60:de:86:55:46\"\nmain = comp",
    ),
    (
        "test-functional",
        "main = ip >-> inc 0\n   >-> conditional is_icmp\n    (inc 1 >-> mark 1 >-> double_steer_ip >-> when (has_mark 1) (inc 2))\n    drop",
    ),
    (
        "everything",
        "predicates =\n    is_ip               .||.\n    is_l3_proto 42      .||.\n    has_addr (CIDR (\"192.168.0.0\", 24)) .||.\n    vlan_id [1, 12]\n\n\
         comparators =\n    (ip_tos .< 42)  .||.\n    (42 /=. udp_len )\n\n\
         cond = do\n    conditional is_tcp (inc 1) unit\n    unless is_ip kernel\n\n\
         filters = do\n    no_frag\n    addr (CIDR (\"192.168.0.0\",24))\n    src_addr \"0.0.0.0/0\"\n\n\
         blooming = do\n    filter (bloom 1024 [\"192.168.0.13\", \"192.168.0.42\"] 32)\n    bloom_src_filter 1024 [\"192.168.0.13\"] 24\n\n\
         main = do\n    filter predicates\n    filter comparators\n    cond\n    filters\n    blooming\n    steer_local_net \"192.168.0.0\" 16 24\n",
    ),
];

#[test]
fn pfqs_programs_run_unchanged() {
    for (name, source) in PFQ {
        let program = compiled(source);
        insta::with_settings!({ description => source, omit_expression => true }, {
            insta::assert_debug_snapshot!(name, program);
        });
    }
}

#[test]
fn one_program_can_be_written_in_many_ways() {
    let meant = compiled("main = tcp >-> inc 0 >-> steer_flow");
    for source in [
        "tcp >-> inc 0 >-> steer_flow",
        "main = do tcp; inc 0; steer_flow",
        "main = do tcp; inc 0; steer_flow;",
        "do { tcp; inc 0; steer_flow }",
        "main = do { tcp\n; inc 0 ;; steer_flow\n}",
        "main = do\n  tcp\n  inc 0\n  steer_flow\n",
        "main = do\n  tcp >-> inc 0\n  steer_flow",
        "main = do\n  tcp\n    >-> inc 0\n  steer_flow",
        "main = do\n\ttcp\n        inc 0\n\tsteer_flow",
        "main = do tcp\n          inc 0\n          steer_flow",
        "main = do\r\n  tcp\r\n\r\n  inc 0\r\n  steer_flow\r\n",
        "main = do\ntcp\ninc 0\nsteer_flow\nweb = has_port 80",
        "a = tcp; main = do a; inc 0; b; b = steer_flow",
        "b = steer_flow\nmain = tcp >-> a b\na f = inc 0 >-> f",
        "main = (tcp >-> (inc 0)) >-> (steer_flow :: NetFunction)",
        "count :: Int -> NetFunction\ncount, other :: Int\ncount = inc\nmain = tcp >-> count 0 >-> steer_flow",
        "f $ steer_flow\nf g = do tcp\n         inc 0\n         g",
        "main = filter is_tcp >-> inc 0x0 >-> steer_flow",
        "main = do\n  do\n    tcp\n    inc 0\n  steer_flow",
        "main\n  = tcp {- first\n {- then -} -} >-> -- count\n  inc 0\n  >-> steer_flow",
    ] {
        assert_eq!(compiled(source), meant, "{source}");
    }
}

#[test]
fn operators_bind_as_documented() {
    let filter = |text: &str| compiled(&format!("filter ({text})"));
    for (short, long) in [
        (
            "is_ip .||. is_tcp .^^. is_udp .&&. is_icmp",
            "is_ip .||. (is_tcp .^^. (is_udp .&&. is_icmp))",
        ),
        (
            "is_ip .&&. is_tcp .||. is_udp",
            "(is_ip .&&. is_tcp) .||. is_udp",
        ),
        ("ip_ttl .< 3 .&&. is_tcp", "(ip_ttl .< 3) .&&. is_tcp"),
        ("not is_tcp .^^. is_udp", "(not is_tcp) .^^. is_udp"),
        ("3 <. ip_ttl", "ip_ttl .> 3"),
        ("3 >=. ip_ttl", "ip_ttl .<= 3"),
        ("ip_ttl `any_bit` 3", "any_bit ip_ttl 3"),
        ("ip_ttl `less` 3", "ip_ttl .< 3"),
        ("is_tcp `and` is_udp", "is_tcp .&&. is_udp"),
        (
            "share 0 2 (key_ip_src <> key_ip_dst)",
            "share 0 2 \"ip_src,ip_dst\"",
        ),
        (
            "share 0 2 (key_ip_src .|. key_ip_dst)",
            "share 0 2 \"key_ip_dst, ip_src\"",
        ),
        ("has_addr (CIDR (\"10.1.2.3\",8))", "has_addr 10.0.0.0/8"),
        ("vlan_id [1..3]", "vlan_id [1, 2, 3]"),
    ] {
        assert_eq!(filter(short), filter(long), "{short}");
    }
    let last = compiled("when is_tcp $ inc 0 >-> drop");
    assert_eq!(last, compiled("when is_tcp (inc 0 >-> drop)"));
    assert_eq!(compiled("when is_tcp do inc 0; drop"), last);
    assert_eq!(
        compiled("tcp `par` udp `par` icmp"),
        compiled("par (par tcp udp) icmp")
    );
}

#[test]
fn sides_narrow_what_lies_in_them() {
    let port = |side| {
        Function::If(
            Box::new(Predicate::Port(side, 53)),
            Box::new(Function::Pass),
            Box::new(Function::Drop),
        )
    };
    assert_eq!(compiled("src (port 53)").main, port(Side::Source));
    assert_eq!(
        compiled("src (dst (port 53))").main,
        port(Side::Destination)
    );
    assert_eq!(
        compiled("src (src_port 53 >-> dst_port 53)").main,
        Function::Sequence(vec![port(Side::Source), port(Side::Destination),])
    );
    assert_eq!(
        compiled("dns = port 53\nmain = src dns >-> dst dns >-> dns").main,
        Function::Sequence(vec![
            port(Side::Source),
            port(Side::Destination),
            port(Side::Either)
        ])
    );
}

#[test]
fn sets_filters_and_samplers_are_numbered_by_their_use() {
    let program = compiled(
        "unused = filter \"arp\" >-> vlan_id_filter [9]\n\
         part = filter \"udp\" >-> sample 1 2\n\
         main = vlan_id_filter [3, 1, 3] >-> part >-> filter \"tcp\" >-> part >-> vlan_id_filter [1, 3]",
    );
    assert_eq!(program.sets, [[1, 3]]);
    let texts: Vec<&str> = program
        .filters
        .iter()
        .map(|Filter { text, .. }| text.as_str())
        .collect();
    assert_eq!(texts, ["udp", "tcp"]);
    let Function::Sequence(parts) = program.main else {
        panic!()
    };
    let samplers = parts.iter().filter_map(|part| {
        let Function::Sample { index, .. } = part else {
            return None;
        };
        Some(*index)
    });
    assert_eq!(samplers.collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn meanings_are_the_documented_ones() {
    let question = |text: &str| {
        let Function::If(question, ..) = compiled(&format!("filter ({text})")).main else {
            panic!("{text}")
        };
        *question
    };
    let is = |property, value| Predicate::Compare(property, Comparison::Equal, value);
    assert_eq!(question("is_ip"), Predicate::Has(Header::Ipv4));
    assert_eq!(question("is_tcp"), is(Property::Protocol, 6));
    assert_eq!(question("is_eth_vlan"), Predicate::Has(Header::Tag));
    assert_eq!(question("is_l3_proto 0x8100"), Predicate::Has(Header::Tag));
    assert_eq!(question("vlan_id [-1, 5]"), Predicate::Has(Header::Tag));
    let net = Net {
        address: [10, 1, 0, 0].into(),
        bits: 16,
    };
    assert_eq!(
        question("has_addr \"10.1.2.3/16\""),
        Predicate::Address(Side::Either, net)
    );
    let steer = |text: &str| {
        let Function::Steer(steer) = compiled(text).main else {
            panic!("{text}")
        };
        steer
    };
    assert_eq!(steer("steer_flow"), Steer::Flow(Flow::WHOLE));
    assert_eq!(steer("steer_ip"), Steer::Flow(Flow::ADDRESSES));
    assert_eq!(
        steer("steer_local_net 10.1.2.3 16 24"),
        Steer::LocalNet(net, 24)
    );
    assert_eq!(steer("steer_key key_vlan"), Steer::Key(Key::VLAN));
}

#[test]
fn modes_are_programs_that_never_drop() {
    for (name, source) in modes::MODES {
        let Function::First(alternatives) = compiled(source).main else {
            panic!("{name}")
        };
        assert_eq!(
            alternatives.last(),
            Some(&Function::Steer(Steer::To(0))),
            "{name}"
        );
        assert_eq!(modes::source(name), Some(source));
    }
    assert_eq!(modes::source("hash"), None);
}

#[test]
fn every_entry_of_the_table_is_made_by_its_example() {
    let mut untold = BTreeSet::new();
    let all = table::GROUPS.iter().flat_map(|group| group.entries);
    assert!(
        all.clone()
            .map(|it| it.entry.name)
            .eq(table::entries().map(|it| it.name))
    );
    for Described { entry, meaning, .. } in all {
        compiled(entry.example);
        let words: Vec<&str> = entry
            .example
            .split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .collect();
        if !entry.names().any(|name| words.contains(&name)) {
            untold.insert(entry.name);
        }
        assert!(meaning.ends_with('.'), "{}", entry.name);
    }
    // The examples of these functions use the operators or `if` instead of the names.
    let operators = [
        "and",
        "conditional",
        "equal",
        "greater",
        "less",
        "less_eq",
        "not_equal",
        "or",
        "xor",
    ];
    assert_eq!(untold, BTreeSet::from(operators));
}

#[test]
fn the_programs_of_the_documentation_compile() {
    let page = include_str!("../../../docs/steering.md");
    let is_code = |line: &str| line.starts_with("    ") || line.is_empty();
    let mut count = 0;
    for block in page
        .split("\n\n")
        .collect::<Vec<_>>()
        .split(|block| !block.lines().all(is_code))
    {
        let program = block.join("\n");
        if !program.trim().is_empty() {
            compiled(&program);
            count += 1;
        }
    }
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    for (program, _) in rows {
        compiled(program);
        count += 1;
    }
    assert_eq!(count, 17);
}

#[test]
fn a_type_ends_with_its_line_or_at_an_operator() {
    let block = compiled("main = do\n  unit\n  inc 0\n  filter is_tcp\n  steer_flow");
    for source in [
        "main = do\n  unit\n  inc 0 :: NetFunction\n  filter is_tcp\n  steer_flow",
        "main = do\n  unit :: NetFunction\n  inc 0\n  filter is_tcp :: Maybe\n      [(A, B)] -> C\n  steer_flow :: F",
        "main = do { unit :: F; inc 0 :: F; filter is_tcp :: F; steer_flow :: F }",
        "main = unit :: NetFunction >-> inc 0 >-> filter (is_tcp :: NetPredicate) >-> steer_flow",
    ] {
        assert_eq!(compiled(source), block, "{source}");
    }
    let filtered = compiled("main = steer_flow >-> filter is_tcp");
    let typed = compiled("main = steer_flow :: NetFunction >-> filter is_tcp\n");
    assert_eq!(typed, filtered);
}

#[test]
fn operators_and_if_are_those_of_the_language_whatever_a_parameter_is_called() {
    for (own, argument, expected) in [
        (
            "equal = filter (ip_ttl .== equal)",
            "64",
            "filter (ip_ttl .== 64)",
        ),
        (
            "less = filter (ip_ttl .< less)",
            "64",
            "filter (ip_ttl .< 64)",
        ),
        (
            "conditional = if conditional then steer_flow else steer_link",
            "is_tcp",
            "if is_tcp then steer_flow else steer_link",
        ),
    ] {
        let source = format!("own {own}\nmain = own {argument}");
        assert_eq!(compiled(&source), compiled(expected), "{source}");
    }
}

#[test]
fn imports_are_passed_over() {
    for import in [
        "import Network.PFQ.Lang.Default",
        "import qualified Network.PFQ.Lang as Q",
        "import Network.PFQ.Lang qualified as Q",
        "import Network.PFQ (tcp, (>->), Net(..))",
        "import Prelude hiding (filter, log)",
        "import Data.List hiding (\n  filter,\n  log)",
        "import Data.Word;",
        "import Prelude ()",
    ] {
        let source = format!("{import}\nmain = tcp >-> steer_flow");
        assert_eq!(
            compiled(&source),
            compiled("tcp >-> steer_flow"),
            "{import}"
        );
    }
}
