//! How names, labels and numbers must be written, as Kubernetes has it. Every answer says what to write instead.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::manifest::{SHOWN_CHARACTERS, shown};
use crate::verdict::{Reason, Verdict};

/// The most bytes that all annotations of an object may have together, keys and values.
pub const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

const DNS_LABEL: &str = "at most 63 lower-case letters, digits and dashes, with a letter or digit at each end";
const DNS_SUBDOMAIN: &str =
    "at most 253 lower-case letters, digits, dashes and dots, with a letter or digit at each end and beside each dot";
const LABEL_VALUE: &str =
    "at most 63 letters, digits, dashes, underscores and dots, with a letter or digit at each end, or leave it empty";

/// Whether text is a DNS label: the name of a container or a namespace.
pub fn dns_label(text: &str) -> Result<(), String> {
    verify(is_dns_label(text), text, DNS_LABEL)
}

/// Whether text is a DNS subdomain: the name of most objects.
pub fn dns_subdomain(text: &str) -> Result<(), String> {
    verify(is_dns_subdomain(text), text, DNS_SUBDOMAIN)
}

/// Whether text is the name of an object that becomes a part of a label: a DNS subdomain of at most 63 characters.
pub fn label_sized_name(text: &str) -> Result<(), String> {
    dns_subdomain(text)?;
    let needed = "at most 63 characters, since labels carry this name";
    verify(text.len() <= MAX_LABEL, text, needed)
}

/// Whether text is the key of a label, an annotation or a taint: a name, perhaps with a DNS subdomain and a slash
/// before it.
pub fn key(text: &str) -> Result<(), String> {
    let (prefix, name) = text.rsplit_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    let is_key = !name.is_empty() && is_word(name) && prefix.is_none_or(is_dns_subdomain);
    let needed = "a name of at most 63 letters, digits, dashes, underscores and dots, with a letter or digit at each \
                  end; a lower-case DNS name and a slash may stand before it, as in example.com/name";
    verify(is_key, text, needed)
}

/// Whether text is the key of an annotation: as that of a label, but upper-case letters may stand before the slash too.
pub fn annotation_key(text: &str) -> Result<(), String> {
    key(&text.to_lowercase())
}

/// Whether text is the value of a label.
pub fn label_value(text: &str) -> Result<(), String> {
    verify(text.is_empty() || is_word(text), text, LABEL_VALUE)
}

/// Whether text is the name of an environment variable.
pub fn env_name(text: &str) -> Result<(), String> {
    let is_printable = |letter: char| letter == ' ' || letter.is_ascii_graphic();
    let is_name = !text.is_empty() && text.chars().all(|letter| is_printable(letter) && letter != '=');
    verify(is_name, text, "printable ASCII characters without \"=\"")
}

/// Whether this is a port of a container: a number, or the name of one.
pub fn port(port: &IntOrString) -> Result<(), String> {
    match port {
        IntOrString::Int(number) => port_number(i64::from(*number)),
        IntOrString::String(name) => {
            let fits = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
            let is_name = (1..=15).contains(&name.len())
                && name.chars().all(fits)
                && name.chars().any(|letter| letter.is_ascii_lowercase())
                && !name.starts_with('-')
                && !name.ends_with('-')
                && !name.contains("--");
            let needed = "a number from 1 to 65535, or the name of a port: at most 15 lower-case letters, digits and \
                          single dashes, with at least one letter";
            verify(is_name, name, needed)
        }
    }
}

/// Whether this is the number of a port.
pub fn port_number(number: i64) -> Result<(), String> {
    verify((1..=65535).contains(&number), &number.to_string(), "a port number from 1 to 65535")
}

/// Whether this is a number of at least 0, or a percentage from 0% to 100%.
pub fn count_or_percent(amount: &IntOrString) -> Result<(), String> {
    let is_fine = match amount {
        IntOrString::Int(number) => *number >= 0,
        IntOrString::String(text) => text.strip_suffix('%').is_some_and(|digits| {
            let is_plain = digits == "0" || digits.starts_with(|first: char| ('1'..='9').contains(&first));
            is_plain && digits.chars().all(|digit| digit.is_ascii_digit()) && digits.len() <= 3 && is_to_100(digits)
        }),
    };
    let found = match amount {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => format!("{:?}", shown(text, SHOWN_CHARACTERS)),
    };
    let wrong =
        || format!("this must be a number of at least 0, or a percentage from \"0%\" to \"100%\", and it is {found}");
    if is_fine { Ok(()) } else { Err(wrong()) }
}

/// Checks labels that something has or gets.
pub fn labels(labels: &BTreeMap<String, String>, field: &str, verdict: &mut Verdict) {
    for (name, value) in labels {
        verdict.check(field, key(name));
        verdict.check(entry(field, name), label_value(value));
    }
}

/// Checks annotations that something has or gets.
pub fn annotations(annotations: &BTreeMap<String, String>, field: &str, verdict: &mut Verdict) {
    for name in annotations.keys() {
        verdict.check(field, annotation_key(name));
    }
    let bytes: usize = annotations.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > MAX_ANNOTATION_BYTES {
        let text =
            format!("these are {bytes} bytes together; an object may have {MAX_ANNOTATION_BYTES} in annotations");
        verdict.refuse(field, Reason::TooLong, text);
    }
}

/// The field of one entry of a map.
pub fn entry(field: &str, name: &str) -> String {
    format!("{field}[{}]", shown(name, SHOWN_CHARACTERS))
}

/// The most characters that a label's value or the name in its key may have.
const MAX_LABEL: usize = 63;

fn verify(is_fine: bool, text: &str, needed: &str) -> Result<(), String> {
    if is_fine { Ok(()) } else { Err(format!("{:?} is not valid: write {needed}", shown(text, SHOWN_CHARACTERS))) }
}

fn is_to_100(digits: &str) -> bool {
    digits.parse::<u16>().is_ok_and(|number| number <= 100)
}

fn is_dns_part(text: &str) -> bool {
    let fits = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    text.starts_with(fits) && text.ends_with(fits) && text.chars().all(|letter| fits(letter) || letter == '-')
}

fn is_dns_label(text: &str) -> bool {
    text.len() <= MAX_LABEL && is_dns_part(text)
}

fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_part)
}

/// A word as labels have it.
fn is_word(text: &str) -> bool {
    let is_end = |letter: char| letter.is_ascii_alphanumeric();
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    text.len() <= MAX_LABEL && text.starts_with(is_end) && text.ends_with(is_end) && text.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(check: fn(&str) -> Result<(), String>, good: &[&str], bad: &[&str]) {
        for text in good {
            assert_eq!(check(text), Ok(()), "{text:?}");
        }
        for text in bad {
            let message = check(text).expect_err(text);
            assert!(message.contains("is not valid: write "), "{message}");
        }
    }

    #[test]
    fn names_are_as_kubernetes_has_them() {
        let (most, more) = ("a".repeat(63), "a".repeat(64));
        taken(dns_label, &["a", "a-1", "1a", &most], &["", "A", "a.b", "-a", "a-", "a_b", &more]);
        taken(dns_subdomain, &["a", "a.b", "a-1.b", &more], &["", "A.b", "a..b", ".a", "a.", "-a.b", &"a".repeat(254)]);
        taken(label_sized_name, &["a.b", &most], &["A", &more]);
        taken(env_name, &["A", "a.b-c", "1", "A B"], &["", "A=B", "ä", "A\n"]);
    }

    #[test]
    fn labels_are_as_kubernetes_has_them() {
        let (most, more) = ("A".repeat(63), "A".repeat(64));
        taken(key, &["a", "A_b.c", "example.com/a", &most], &["", "/a", "a/", "a/b/c", "X.com/a", "a b", "-a", &more]);
        taken(label_value, &["", "a", "A_b.c-1", &most], &["a b", "-a", "a.", "a/b", &more]);
    }

    #[test]
    fn ports_and_amounts() {
        let (int, text) = (IntOrString::Int, |text: &str| IntOrString::String(text.to_owned()));
        for good in [int(1), int(65535), text("web"), text("http-2")] {
            assert_eq!(port(&good), Ok(()));
        }
        for bad in
            [int(0), int(65536), text(""), text("80"), text("Web"), text("a--b"), text("-a"), text("sixteen-long-aaa")]
        {
            assert!(port(&bad).is_err(), "{bad:?}");
        }
        for good in [int(0), int(7), text("0%"), text("9%"), text("50%"), text("100%")] {
            assert_eq!(count_or_percent(&good), Ok(()));
        }
        for bad in [int(-1), text("101%"), text("-5%"), text("05%"), text("50"), text("half"), text("%"), text("1000%")]
        {
            let message = count_or_percent(&bad).expect_err("it is wrong");
            assert!(message.contains("must be a number of at least 0, or a percentage"), "{message}");
        }
    }

    #[test]
    fn maps_tell_each_mistake() {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let mut verdict = Verdict::default();
        labels(&map(&[("a b", "x"), ("c", "x y")]), "spec.labels", &mut verdict);
        let fields: Vec<&str> = verdict.errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["spec.labels", "spec.labels[c]"]);
        let mut verdict = Verdict::default();
        annotations(
            &map(&[("Example.com/A", "any thing"), ("b", &"x".repeat(MAX_ANNOTATION_BYTES))]),
            "a",
            &mut verdict,
        );
        assert_eq!(verdict.errors.len(), 1);
        assert_eq!(verdict.errors[0].reason, Reason::TooLong);
    }
}
