//! Wrong programs, and their error messages.

use fanpcap_bpf::Classic;
use fanpcap_bpf::classic::ancillary::{SKF_AD_OFF, SKF_AD_PKTTYPE};
use fanpcap_bpf::classic::opcode::LD_B_ABS;
use fanpcap_steer::{FILTER_LENGTH_MAX, tree};

/// Wrong programs by topic.
const WRONG: [(&str, &[&str]); 11] = [
    (
        "names",
        &[
            "main = tpc >-> steer_flow",
            "main = tcp >-> steer_flwo",
            "main = when is_tpc drop",
            "main = has_prt 53 >-> steer_flow",
            "main = filter (dst_prt 53)",
            "main = is_fragg",
            "main = filter ip_tttl",
            "main = filter (ip_tll .< 3)",
            "main = steer_key key_5tupel",
            "main = addr (CIDER (\"10.0.0.0\", 8))",
            "web = has_port 80\nmain = filter wbe",
            "mian = tcp",
            "web = has_port 80",
            "import Lib.Filter\nmain = filterFunction",
            "main = xyzzy",
            "web prot = has_port port_\nmain = tcp",
            "web = has_port 80\nweb = has_port 443\nmain = filter web",
            "two a a = par a a\nmain = two tcp udp",
            "main f = f",
            "tcp = udp\nmain = tcp >-> steer_flow",
            "main = tcp\nhas_port n = is_tcp",
            "import \"x\" qualified hiding\nmain = tcp",
            "import\nmain = tcp",
            "import Data.List hiding\nmain = tcp",
            "import Data.List as\nmain = tcp",
            "import Data.List everything\nmain = tcp",
            "main ::",
            "main ::\nmain = tcp",
            "main, web ::\nmain = tcp",
            "main = addr :: >-> steer_flow",
        ],
    ),
    (
        "types",
        &[
            "main = is_tcp",
            "main = is_tcp .&&. has_port 80",
            "main = has_port 80",
            "main = filter tcp",
            "main = when udp drop",
            "main = filter ip_ttl",
            "main = filter (64 .< ip_ttl)",
            "main = filter (ip_ttl <. 64)",
            "main = tcp .||. udp",
            "main = is_tcp >-> steer_flow",
            "main = when is_tcp",
            "main = when is_tcp drop drop",
            "main = tcp udp",
            "main = steer_flow 3",
            "main = \"tcp port 80\"",
            "main = 7",
            "main = [1, 2]",
            "main = (tcp, udp)",
            "main = vlan_id_filter 5",
            "main = vlan_id_filter [1, tcp]",
            "main = port tcp",
            "main = steer_key 7",
            "main = key_ip_src <> tcp",
            "main = inc \"one\"",
            "main = key_5tuple",
        ],
    ),
    (
        "numbers",
        &[
            "main = port 65536",
            "main = inc 64",
            "main = classify 0",
            "main = steer_field 14 5",
            "main = steer_to 2147483648",
            "main = vlan_id_filter [1, -2]",
            "main = l4_proto 256",
            "main = port 80x",
            "main = mark 0x1ffffffff",
            "main = filter (ip_id .== 99999999999999999999)",
            "main = sample 3 2",
            "main = filter (share 4 4 \"ip_src\")",
            "main = vlan_id_filter [1..70000]",
            "main = vlan_id_filter [tcp..5]",
            "main = port -1",
        ],
    ),
    (
        "addresses",
        &[
            "main = addr \"192.168.0.256\"",
            "main = addr 10.0.0.0/33",
            "main = addr 2001:db8::/129",
            "main = addr \"2001:db8::zz/32\"",
            "main = addr (CIDR (\"10.0.0.0\", 40))",
            "main = addr CIDR",
            "main = addr 10",
            "main = steer_local_net \"10.0.0.0/8\" 8 24",
            "main = steer_local_net \"10.0.0.0\" 24 8",
            "main = steer_local_net \"10.0.0.0\" 8 33",
            "main = steer_local_link \"4c:60:de:86:55\"",
            "main = bloom_filter 64 [\"10.0.0.1\", \"2001:db8::1\"] 32",
            "main = bloom_filter 64 [\"10.0.0.1\"] 33",
            "main = bloom_filter 64 [10] 32",
            "main = steer_key \"ip_scr,ip_dst\"",
        ],
    ),
    (
        "operators",
        &[
            "main = tcp >> steer_flow",
            "main = filter (is_tcp && has_port 80)",
            "main = filter (is_tcp || is_udp)",
            "main = filter (ip_ttl == 64)",
            "main = filter (1 <. ip_ttl .< 3)",
            "main = tcp >->",
            "main = >-> tcp",
            "main = filter (is_tcp `and is_udp)",
            "main = filter (is_tcp `80` is_udp)",
            "main = par tcp $",
            "main = \\p -> filter p",
            "main = filter (! is_tcp)",
        ],
    ),
    (
        "grammar",
        &[
            "",
            "-- nothing\n",
            "main =",
            "main = (tcp >-> udp",
            "main = filter (has_port 80\nweb = has_port 443",
            "main = vlan_id_filter [1, 2",
            "main = tcp)",
            "main = if is_tcp steer_flow",
            "main = if is_tcp then steer_flow",
            "main = let x = tcp in x",
            "main = f where f = tcp",
            "main = case 1 of",
            "type Web = Int\nmain = tcp",
            "main = filter ()",
            "tcp\nsteer_flow",
            "main = {tcp}",
            "module Main (main)\nmain = tcp",
        ],
    ),
    (
        "blocks",
        &[
            "main = do",
            "main = do\n  tcp\n    udp",
            "main = do\n  tcp\n udp",
            "main = do\n    when is_tcp $ do\n    inc 0",
            "main = do { tcp; udp",
            "main = do {}",
            "main = do\n  tcp\n  steer_flwo",
            "main = do\n  x <- tcp\n  udp",
            "  main = do\n   tcp\n udp",
        ],
    ),
    (
        "text",
        &[
            "main = filter \"tcp port 80",
            "main = filter \u{201c}tcp\u{201d}",
            "main = {- tcp",
            "main = filter \"a\\qb\"",
            "# main\nmain = tcp",
            "main = tcp;; § udp",
            "\u{feff}main = tcp",
            "main =\u{a0}tcp",
            "main = filter \"tpc port 80\"",
        ],
    ),
    (
        "lists",
        &[
            "main = vlan_id_filter [1,3..9]",
            "main = vlan_id_filter [45..42]",
            "f n = [n..42]\nmain = vlan_id_filter (f 45)",
        ],
    ),
    (
        "habits",
        &[
            "main = tcp --> steer_flow",
            "main = tcp --| the web\n",
            "main = filter \"inbound\"",
            "main = filter is_tcp .&&. has_port 80",
            "main = when is_tcp .&&. is_ip drop",
            "main = filter tcp port 80",
            "main = filter host 10.0.0.1",
            "main = addr 10.0.0.0/255.0.0.0",
            "main = addr \"10.0.0.0/255.0.255.0\"",
            "main = addr \"10.0.0.0/+8\"",
            "web p = has_port p\nmain = filter (web \"x\")",
            "web p = has_port p\nboth p = filter (web p)\nmain = both tcp",
            "ids n = vlan_id_filter [1, n]\nmain = ids 5000",
            "main = has_port(80) >-> drop",
            "main = filter $ is_tcp .||. is_udp >-> steer_flow",
            "main = par tcp udp icmp",
            "main = do\n  let web = has_port 80\n  filter web",
            "main = do\n  x = tcp\n  udp",
            "main = tcp ::",
        ],
    ),
    (
        "others",
        &[
            "main = forward \"eth1\"",
            "main = tcp >-> log_packet",
            "main = filter is_ip_host",
            "main = tee \"eth1\" is_udp >-> kernel",
            "main = dummy_int 42",
            "main = classify class_control_plane",
            "a = b\nb = a\nmain = a",
            "f x = f x\nmain = f tcp",
            "main = inner (inner (inner steer_flow))",
        ],
    ),
];

fn refused(source: &str) -> String {
    let pcap = |text: &str| match text {
        "tcp" => Ok(Vec::new()),
        // `ldb #type`
        "inbound" => Ok(vec![Classic::new(LD_B_ABS, SKF_AD_OFF + SKF_AD_PKTTYPE)]),
        _ => Err("syntax error".to_owned()),
    };
    let error = tree(source, &pcap).expect_err(source);
    let (line, column) = error.position(source);
    let rendered = error.render(source);
    assert!(
        rendered.starts_with(&format!("{line}:{column}: expected ")),
        "{rendered}"
    );
    assert!(rendered.contains(", found "), "{rendered}");
    rendered
}

#[test]
fn errors_say_where_what_was_expected_and_what_was_meant() {
    for (topic, programs) in WRONG {
        let rendered: Vec<String> = programs.iter().map(|source| refused(source)).collect();
        insta::with_settings!({ omit_expression => true }, {
            insta::assert_snapshot!(topic, rendered.join("\n\n"));
        });
    }
    let count: usize = WRONG.iter().map(|(_, programs)| programs.len()).sum();
    assert!(count >= 60, "{count}");
}

/// Source of `main`: `count` times the opening text, then `tcp`, then `count` times the closing
/// text.
fn deep(open: &str, close: &str, count: usize) -> String {
    format!("main = {}tcp{}", open.repeat(count), close.repeat(count))
}

/// `((... `par` tcp ...) `par` tcp ...)`: 64 functions between back quotes in each of `count`
/// parentheses.
fn named_in_parentheses(count: usize) -> String {
    let named = format!("{})", " `par` tcp".repeat(64));
    format!(
        "f p = {}tcp{}\nmain = tcp",
        "(".repeat(count),
        named.repeat(count)
    )
}

/// Source of `first`, 200 definitions that each name the previous one, and `main`.
fn grown(first: &str, more: &str, main: &str) -> String {
    let line = |at: usize| {
        more.replace("NEXT", &format!("f{at}"))
            .replace("LAST", &format!("f{}", at - 1))
    };
    let lines: Vec<String> = (1..=200).map(line).collect();
    format!("{first}\n{}\n{main}", lines.join("\n"))
}

/// Size of the thread's stack in bytes. Without optimization a stack frame is several times as
/// large as in a release.
const STACK: usize = 1 << 20;

/// Compiles in a thread with a small stack: the compiler must refuse the source before it recurses
/// too deep.
fn refused_for(source: &str, expected: &str) {
    let source = source.to_owned();
    let compile = move || tree(&source, &|_| Ok(Vec::new()));
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(compile);
    let error = thread
        .expect("a thread")
        .join()
        .expect("its end")
        .expect_err(expected);
    assert!(
        error.message.contains(expected),
        "{error} instead of {expected}"
    );
}

#[test]
fn nesting_is_limited_and_nothing_overflows() {
    for (open, close) in [
        ("(", ")"),
        ("do ", ""),
        ("if is_tcp then ", ""),
        ("inv $ ", ""),
        ("[", "]"),
    ] {
        refused_for(
            &deep(open, close, 4000),
            "expected at most 64 nested expressions",
        );
    }
    refused_for(
        &deep("tcp `par` ", "", 6000),
        "expected at most 64 functions between back quotes",
    );
    refused_for(
        &named_in_parentheses(63),
        "expected at most 64 functions between back quotes",
    );
    refused_for(
        &grown("f0 = tcp", "NEXT = par LAST udp", "main = f200"),
        "nested",
    );
    refused_for(
        &grown("f0 x = x", "NEXT x = LAST x", "main = f200 tcp"),
        "nested",
    );
    refused_for("y f x = f (y f) x\nmain = y y tcp", "nested");
}

#[test]
fn values_do_not_grow_from_definition_to_definition() {
    for more in ["NEXT = [LAST]", "NEXT = (LAST, 1)", "NEXT = pair LAST"] {
        let source = grown("pair a b = a\nf0 = tcp", more, "main = tcp");
        refused_for(&source, "expected at most 64 nested values");
    }
}

#[test]
fn size_is_limited() {
    let nodes = "expected at most 4096 functions and predicates";
    refused_for(
        &"x".repeat(65_537),
        "expected at most 65536 bytes, found 65537",
    );
    refused_for(&deep("tcp >-> ", "", 5000), nodes);
    refused_for(
        &grown("f0 = tcp", "NEXT = LAST >-> LAST", "main = f40"),
        nodes,
    );
    refused_for(
        &grown("f0 x = x", "NEXT x = LAST (LAST x)", "main = f40 tcp"),
        "definitions expand in at most",
    );
    refused_for(
        &deep("sample 1 2 >-> ", "", 17),
        "expected 'sample' at most 16 times",
    );
    let filters: Vec<String> = (0..17)
        .map(|at| format!("filter \"tcp port {at}\""))
        .collect();
    refused_for(
        &format!("main = {}", filters.join(" >-> ")),
        "expected at most 16 different pcap",
    );
    let long = format!("main = filter \"{}\"", "x".repeat(FILTER_LENGTH_MAX + 1));
    refused_for(
        &long,
        "expected a pcap expression of at most 2048 bytes, found 2049",
    );
    let list = ["1..4000"; 17].join(",");
    refused_for(
        &format!("main = vlan_id_filter [{list}]"),
        "expected a list of at most 65536",
    );
    refused_for(
        "f a b c d e f g h i = tcp\nmain = tcp",
        "expected at most 8 parameters, found 9",
    );
    refused_for(
        "f a b c d e f g h i j k l = tcp\nmain = tcp",
        "expected at most 8 parameters, found 12",
    );
}

#[test]
fn what_is_at_the_limits_is_taken() {
    for source in [
        format!("main = {}tcp{}", "(".repeat(63), ")".repeat(63)),
        format!("main = {}inv tcp", "inv $ ".repeat(60)),
        format!("main = {}tcp", "inc 1 >-> ".repeat(4000)),
        format!("main = filter \"{}\"", "x".repeat(FILTER_LENGTH_MAX)),
        format!("main = {}tcp", "tcp `par` ".repeat(60)),
        format!("main = filter ({}is_udp)", "is_tcp .||. ".repeat(2000)),
        format!("main = {}", ["sample 1 2"; 16].join(" >-> ")),
        format!("main = vlan_id_filter [{}]", vec!["7"; 32_000].join(",")),
        "main = vlan_id_filter [0..4095]".to_owned(),
        "main = inner (inner steer_flow)".to_owned(),
    ] {
        tree(&source, &|_| Ok(Vec::new())).unwrap_or_else(|error| panic!("{error}"));
    }
}
