//! The same values to us and to Go's encoder: equal bytes.

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::process::{Command, Stdio};

use dapple_edit::go_json::encode;
use fastrand::Rng;
use serde_json::{Map, Value, json};

use crate::differential::oracle;

/// How many values a test run compares.
const VALUES: u64 = 50_000;
const DEEPEST: usize = 6;

/// Whatever encoders treat differently, and what they do not.
const PIECES: [&str; 24] = [
    "a", "Z", "0", " ", "&", "&&", "<", ">", "\u{2028}", "\u{2029}", "\"", "\\", "/", "\n", "\t", "\u{0}", "\u{8}",
    "\u{c}", "\u{1f}", "\u{7f}", "é", "漢", "🦀", "\u{feff}",
];

fn text(random: &mut Rng) -> String {
    (0..random.usize(0..6)).map(|_| PIECES[random.usize(0..PIECES.len())]).collect()
}

fn number(random: &mut Rng) -> Value {
    match random.usize(0..6) {
        0 => json!(random.i64(-1000..1000)),
        1 => json!(random.i64(..)),
        2 => json!(random.u64(..)),
        3 => json!((random.f64() - 0.5) * 10_f64.powi(random.i32(-30..30))),
        // As rare as they are dangerous: near the bounds between two ways of writing.
        4 => json!([0.0, -0.0, 1.0, 1e3, 1e-6, 9.999e-7, 1e20, 1e21, 1e300, 5e-324][random.usize(0..10)]),
        _ => {
            let any = f64::from_bits(random.u64(..));
            json!(if any.is_finite() { any } else { 0.5 })
        }
    }
}

fn value(random: &mut Rng, depth: usize) -> Value {
    match random.usize(0..if depth == 0 { 4 } else { 6 }) {
        0 => Value::Null,
        1 => json!(random.bool()),
        2 => number(random),
        3 => json!(text(random)),
        4 => (0..random.usize(0..4)).map(|_| value(random, depth - 1)).collect(),
        _ => {
            let fields = (0..random.usize(0..4)).map(|_| (text(random), value(random, depth - 1)));
            Value::Object(fields.collect::<Map<String, Value>>())
        }
    }
}

#[test]
fn bytes_equal_those_of_kubernetes() {
    let made = |number: u64| value(&mut Rng::with_seed(number), DEEPEST);
    let mut go = Command::new(oracle()).arg("encode").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut questions = BufWriter::new(go.stdin.take().unwrap());
    let asker = std::thread::spawn(move || {
        for number in 0..VALUES {
            writeln!(questions, "{}", made(number)).unwrap();
        }
    });
    let (mut answered, mut changed) = (0, 0);
    for (number, line) in (0..VALUES).zip(BufReader::new(go.stdout.take().unwrap()).lines()) {
        let (value, theirs) = (made(number), line.unwrap());
        assert_eq!(encode(&value), theirs, "value {number}: {value}");
        let other_encoder = value.to_string();
        (answered, changed) = (answered + 1, changed + u64::from(other_encoder != theirs));
    }
    asker.join().unwrap();
    assert!(go.wait().unwrap().success());
    assert_eq!(answered, VALUES);
    assert!(changed > VALUES / 5, "the values say too little: Go writes {changed} of them otherwise");
}
