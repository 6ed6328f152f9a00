//! Files that must be refused, and what is said about each.

use proptest::prelude::*;

use super::*;

fn refused(bytes: &[u8]) -> String {
    match read("f.yaml", bytes) {
        Ok(manifests) => panic!("{} objects were read from {:?}", manifests.len(), String::from_utf8_lossy(bytes)),
        Err(error) => error.to_string(),
    }
}

/// Files, and what is said about them after `f.yaml:`.
const REFUSED: &[(&[u8], &str)] = &[
    // Encodings.
    (b"a: 1\nb: \xC3\xA9\xFF\n", "2:5: byte 0xFF at offset 10 is not UTF-8: save the file as UTF-8"),
    (b"\xEF\xBB\xBF\xFF", "1:1: byte 0xFF at offset 3 is not UTF-8: save the file as UTF-8"),
    (b"\r\n\r\r\n \x80", "4:2: byte 0x80 at offset 6 is not UTF-8: save the file as UTF-8"),
    (b"\xFF\xFEa\0", "1:1: the file is UTF-16: save it as UTF-8"),
    (b"\xFE\xFF\0a", "1:1: the file is UTF-16: save it as UTF-8"),
    (b"a: 1\nb\0: 2", "2:2: control character U+0000: remove it, or write it as \"\\u0000\" in double quotes"),
    (b"a: \"\x1B[31m\"", "1:5: control character U+001B: remove it, or write it as \"\\u001B\" in double quotes"),
    // Syntax.
    (b"a:\n\tb: 1\n", "2:2: a: a tab cannot stand here: indent with spaces"),
    (b"a: \"b", "1:4: a: a quote is never closed"),
    (b"a: \"b\nc: d\n", "2:1: a: this is inside a quote that is still open: close the quote, or indent the line"),
    (b"a: [1, 2\n", "1:4: a[1]: [ is never closed"),
    (b"a: b: c\n", "1:5: a colon cannot stand here: put the text in quotes, or begin a new line"),
    (b"a: 1\n---\nb:\n  - c: {\n", "4:8: b[0].c: { is never closed"),
    (b"{\"a\": 1}\n{\"b\": 2}\n", "2:1: an object has ended here: separate documents by a line of ---"),
    (b"a: 1\r\nb: *c\r\n", "2:4: b: there is no such anchor: an alias comes after its anchor, in the same document"),
    // Keys.
    (b"a:\n  b: 1\n  c: 2\n  b: 3\n", "4:3: a.b: duplicate key \"b\", first at 2:3: remove one"),
    (b"{\"a\": [{\"b\": 1, \"b\": 2}]}", "1:17: a[0].b: duplicate key \"b\", first at 1:9: remove one"),
    (b"1: a\n\"1\": b\n", "2:1: 1: duplicate key \"1\", first at 1:1: remove one"),
    (b"on: a\nyes: b\n", "2:1: true: duplicate key \"true\", first at 1:1: remove one"),
    (b"a: {1.20: b}\n", "1:5: a: a number with a fraction cannot be a key: put the key in quotes"),
    (b"~: b\n", "1:1: null cannot be a key: put the key in quotes"),
    (b"name: {{ .Values.name }}\n", "1:8: name: an object cannot be a key: if this is a template, render it first"),
    (b"? [a]\n: b\n", "1:3: a list cannot be a key: if this is a template, render it first"),
    // Anchors, aliases and merge keys.
    (b"a: &x [*x]\n", "1:8: a[0]: the alias *x is inside the value that it repeats"),
    (
        b"a: &x {b: 1}\nc: {b: 2, <<: *x}\n",
        "2:11: c.<<: \"b\" is written before the merge key << that sets it too: put << first",
    ),
    (b"a: &x {b: 1}\nc: {<<: *x, <<: *x}\n", "2:13: c.<<: duplicate key \"<<\", first at 2:5: remove one"),
    (b"a: &x 1\nb: {<<: *x}\n", "2:5: b.<<: the merge key << takes an object or a list of objects, not a number"),
    (b"a: {<<: [b]}\n", "1:5: a.<<: the merge key << takes an object or a list of objects, not text"),
    (
        b"a: &x 1\n---\nb: *x\n",
        "3:4: b: there is no such anchor: an alias comes after its anchor, in the same document",
    ),
    // Numbers.
    (
        b"a: 18446744073709551616\n",
        "1:4: a: the number 18446744073709551616 does not fit in 64 bits: put it in quotes if it is meant as text",
    ),
    (
        b"a: [0, -9223372036854775809]\n",
        "1:8: a[1]: the number -9223372036854775809 does not fit in 64 bits: put it in quotes if it is meant as text",
    ),
    (
        b"a: 0x10000000000000000\n",
        "1:4: a: the number 0x10000000000000000 does not fit in 64 bits: put it in quotes if it is meant as text",
    ),
    (b"{\"a\": 1e400}\n", "1:7: a: the number 1e400 does not fit in 64 bits: put it in quotes if it is meant as text"),
    (b"a: .inf\n", "1:4: a: .inf is no number in JSON: put it in quotes if it is meant as text"),
    (b"a: -.INF\n", "1:4: a: -.INF is no number in JSON: put it in quotes if it is meant as text"),
    (b"a: .nan\n", "1:4: a: .nan is no number in JSON: put it in quotes if it is meant as text"),
    // Tags.
    (b"a: !Ref b\n", "1:9: a: unknown tag !Ref: remove it"),
    (b"a: !!binary aGk=\n", "1:13: a: unknown tag !!binary: remove it"),
    (b"a: !!set {b}\n", "1:10: a: unknown tag !!set: remove it"),
    (b"a: !!int b\n", "1:10: a: \"b\" is not of the type that its tag !!int names: remove the tag"),
    // Documents.
    (b"just text\n", "1:1: expected an object, found text"),
    (b"# c\n---\n- a\n- b\n", "3:1: expected an object, found a list"),
    (b"kind: List\nitems:\n- kind: A\n- 5\n", "4:3: items[1]: expected an object, found a number"),
    // Text that would steer a terminal.
    (
        b"\"\\e[31m\": {a: .inf}\n",
        "1:15: \\u{1b}[31m.a: .inf is no number in JSON: put it in quotes if it is meant as text",
    ),
];

#[test]
fn what_is_refused_names_its_place_and_the_remedy() {
    for (bytes, expected) in REFUSED {
        assert_eq!(refused(bytes), format!("f.yaml:{expected}"), "{}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn large_files_are_refused_by_their_size() {
    let bytes = vec![b' '; MAX_BYTES + 1];
    assert_eq!(
        refused(&bytes),
        "f.yaml:1:1: the file has more than the 16777216 bytes (16 MiB) that are read: split it"
    );
    assert!(read("f.yaml", &bytes[1..]).expect("as large as allowed").is_empty());
}

#[test]
fn deep_nesting_is_refused() {
    let lists = |depth: usize| format!("a: {}{}", "[".repeat(depth - 1), "]".repeat(depth - 1));
    let objects = |depth: usize| format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    let dashes = |depth: usize| format!("a:\n{}b\n", "- ".repeat(depth - 1));
    let blocks = |depth: usize| (0..depth).map(|level| format!("{}a:\n", " ".repeat(level))).collect::<String>();
    let mixed = |depth: usize| format!("{}{}{}", blocks(60), " ".repeat(60), objects(depth - 60));
    let aliases = |depth: usize| format!("a: &a {}{}\nb: {{c: *a}}", "[".repeat(depth - 2), "]".repeat(depth - 2));
    let shapes: [&dyn Fn(usize) -> String; 6] = [&lists, &objects, &dashes, &blocks, &mixed, &aliases];
    for shape in shapes {
        read("f.yaml", shape(MAX_DEPTH).as_bytes()).expect("as deep as allowed");
        for depth in [MAX_DEPTH + 1, 300, 5000] {
            let message = refused(shape(depth).as_bytes());
            assert!(message.ends_with("nested more than 100 levels deep"), "{message}");
        }
    }
    assert_eq!(refused(aliases(101).as_bytes()), "f.yaml:2:8: b.c: nested more than 100 levels deep");
}

#[test]
fn aliases_that_multiply_are_refused() {
    let mut laughs = "a0: &a0 lol\n".to_owned();
    for level in 1..10 {
        let names = format!("*a{}, ", level - 1).repeat(10);
        laughs.push_str(&format!("a{level}: &a{level} [{names}]\n"));
    }
    assert_eq!(
        refused(laughs.as_bytes()),
        "f.yaml:7:40: a6[6]: more than 1000000 values, those that aliases repeat included: split the file, or use fewer \
         aliases"
    );
    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), "*a,".repeat(16));
    assert_eq!(
        refused(long.as_bytes()),
        "f.yaml:2:50: b[15]: aliases repeat more than 16777216 bytes (16 MiB) of text: use fewer"
    );
    let merges = format!(
        "a: &a {{{}}}\nb: [{}]\n",
        (0..1000).map(|key| format!("k{key}: 1,")).collect::<String>(),
        "{<<: *a},".repeat(1000)
    );
    assert!(refused(merges.as_bytes()).contains("more than 1000000 values"));
    let nested = format!("a: {}{}\n", "&a [".repeat(90), "1,".repeat(100_000)) + &"]".repeat(90);
    assert!(refused(nested.as_bytes()).contains("more than 1000000 values"));
}

#[test]
fn small_values_without_end_are_refused() {
    let many = format!("a: [{}]", "1,".repeat(MAX_VALUES));
    assert_eq!(
        refused(many.as_bytes()),
        "f.yaml:1:2000001: a[999998]: more than 1000000 values, those that aliases repeat included: split the file, or \
         use fewer aliases"
    );
}

#[test]
fn messages_stay_short() {
    let keys: String = (0..90).map(|level| format!("{}{}:\n", " ".repeat(level), "k".repeat(10))).collect();
    let message = refused(format!("{keys}{}.inf\n", " ".repeat(90)).as_bytes());
    assert!(message.len() < 400, "{message}");
    let key = "k".repeat(1000);
    let message = refused(format!("{key}: .inf\n").as_bytes());
    assert_eq!(
        message,
        format!(
            "f.yaml:1:1003: {}…: .inf is no number in JSON: put it in quotes if it is meant as text",
            "k".repeat(60)
        )
    );
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read("f.yaml", &bytes);
    }

    #[test]
    fn no_text_makes_it_panic(text in "[-a0:&*<{}\\[\\], \n\t\"'|>!?%#~.]{0,60}", path in "[a0.=\\[\\]]{0,12}") {
        for manifest in read("f.yaml", text.as_bytes()).unwrap_or_default() {
            let lines = text.lines().count();
            prop_assert!((1..=lines).contains(&manifest.locate(&path).line));
        }
    }
}
