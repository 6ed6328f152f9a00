//! The grammar of image names, which is that of the reference library that registries, container runtimes and kubelets
//! share (distribution/reference).

use std::net::Ipv6Addr;

/// The most characters of a repository.
const LONGEST_REPOSITORY: usize = 255;

/// The most characters of a tag.
const LONGEST_TAG: usize = 128;

/// The kinds of digests that there are, and how many digits each has.
const DIGESTS: [(&str, usize); 3] = [("sha256", 64), ("sha384", 96), ("sha512", 128)];

/// Whether what stands before the first slash of a name is meant as a registry; else it is a part of the repository.
pub(super) fn means_registry(text: &str) -> bool {
    text == "localhost" || text.contains(['.', ':']) || text.contains(|letter: char| letter.is_ascii_uppercase())
}

/// Whether this is a registry: a host, perhaps with a port, that nobody takes for a part of a repository.
pub(super) fn is_registry(text: &str) -> bool {
    // The colons of an address are inside its brackets.
    let (host, port) = match text.rfind(']') {
        Some(end) => (&text[..=end], &text[end + 1..]),
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    means_registry(text) && (is_domain(host) || is_address(host)) && (port.is_empty() || is_port(port))
}

fn is_domain(text: &str) -> bool {
    text.split('.').all(|part| {
        let fits = |letter: char| letter.is_ascii_alphanumeric();
        part.starts_with(fits) && part.ends_with(fits) && part.chars().all(|letter| fits(letter) || letter == '-')
    })
}

/// Whether this is an IPv6 address in brackets; without a zone, and without dots.
fn is_address(text: &str) -> bool {
    let inside = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    inside.is_some_and(|inside| !inside.contains('.') && inside.parse::<Ipv6Addr>().is_ok())
}

/// Whether this is a port with the colon before it.
fn is_port(text: &str) -> bool {
    let digits = text.strip_prefix(':').filter(|text| text.bytes().all(|digit| digit.is_ascii_digit()));
    digits.is_some_and(|digits| digits.parse::<u16>().is_ok())
}

/// Whether this is a repository: words between slashes.
pub(super) fn is_repository(text: &str) -> bool {
    text.len() <= LONGEST_REPOSITORY && text.split('/').all(is_word)
}

/// Whether this is small letters and digits, with `.`, `_`, `__` or any number of `-` between them.
fn is_word(word: &str) -> bool {
    let fits = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let is_between = |text: &str| matches!(text, "" | "." | "_" | "__") || text.bytes().all(|byte| byte == b'-');
    word.starts_with(fits) && word.ends_with(fits) && word.split(fits).all(is_between)
}

/// Whether this is a tag.
pub(super) fn is_tag(text: &str) -> bool {
    let starts = text.starts_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '_');
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "_.-".contains(letter);
    starts && text.len() <= LONGEST_TAG && text.chars().all(fits)
}

/// Whether this is a digest of a kind that there is, with as many digits as it has, all of them small.
pub(super) fn is_digest(text: &str) -> bool {
    let Some((kind, digits)) = text.split_once(':') else { return false };
    let is_digit = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    DIGESTS.contains(&(kind, digits.len())) && digits.bytes().all(is_digit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Image;
    use super::*;

    #[test]
    fn registries_are_hosts_and_addresses() {
        for good in [
            "localhost",
            "localhost:5000",
            "x.io",
            "X.io",
            "REGISTRY",
            "a-b.c--d.io:1",
            "10.0.0.1",
            "[::1]:5000",
            "[fd00::1:2]",
            "[2001:db8:0:0:0:0:0:1]:65535",
        ] {
            assert!(is_registry(good), "{good}");
        }
        for bad in [
            "",
            "registry",
            "-x.io",
            "x-.io",
            "x..io",
            ".x.io",
            "x.io.",
            "x_y.io",
            "x.io:",
            "x.io:+5",
            "x.io:65536",
            "x.io:5000:1",
            "x.io:a",
            ":5000",
            "::1",
            "[::1",
            "::1]",
            "[]",
            "[]:5000",
            "[::1]x",
            "[::1]5000",
            "[::g]",
            "[fe80::1%eth0]",
            "[::ffff:1.2.3.4]",
            "[x.io]",
            "[::1]]",
            "x.io/a",
            "ä.io",
        ] {
            assert!(!is_registry(bad), "{bad:?} was taken");
        }
    }

    #[test]
    fn repositories_are_words_between_slashes() {
        for good in ["a", "a/b", "a.b/c_d", "a__b", "a---b", "0/1", &"a".repeat(255)] {
            assert!(is_repository(good), "{good}");
        }
        for bad in ["", "/", "a/", "/a", "a//b", "a..b", "a___b", "a._b", "a.-b", "a-_b", "-a", "a-", "A", "a b", "ä"]
        {
            assert!(!is_repository(bad), "{bad:?} was taken");
        }
        assert!(!is_repository(&"a".repeat(256)));
    }

    #[test]
    fn digests_are_of_three_kinds() {
        let digest = |kind: &str, digit: &str, count: usize| format!("{kind}:{}", digit.repeat(count));
        for (kind, count) in DIGESTS {
            assert!(is_digest(&digest(kind, "a", count)) && is_digest(&digest(kind, "9", count)), "{kind}");
            for (bad, why) in [
                (digest(kind, "a", count - 1), "too short"),
                (digest(kind, "a", count + 1), "too long"),
                (digest(kind, "A", count), "upper case"),
                (digest(kind, "g", count), "no digits"),
                (digest(&kind.to_uppercase(), "a", count), "an upper-case kind"),
                (digest(&format!("v1{kind}"), "a", count), "another kind"),
            ] {
                assert!(!is_digest(&bad), "{kind}: {why}");
            }
        }
        for bad in [digest("md5", "a", 32), digest("sha1", "a", 40), digest("sha256", "a", 96), "a".repeat(64)] {
            assert!(!is_digest(&bad), "{bad}");
        }
    }

    fn registry() -> impl Strategy<Value = String> {
        let host = "[a-zA-Z0-9]([a-zA-Z0-9-]{0,6}[a-zA-Z0-9])?(\\.[a-zA-Z0-9]([a-zA-Z0-9-]{0,6}[a-zA-Z0-9])?){1,3}";
        let address = any::<[u16; 8]>().prop_map(|parts| {
            let parts: Vec<String> = parts.iter().map(|part| format!("{part:x}")).collect();
            format!("[{}]", parts.join(":"))
        });
        let port = proptest::option::of(any::<u16>());
        let host = prop_oneof![host.prop_map(|host| host), address, Just("localhost".to_owned())];
        (host, port).prop_map(|(host, port)| port.map_or(host.clone(), |port| format!("{host}:{port}")))
    }

    /// A good name in its parts: registry, repository, tag and digest.
    fn parts() -> impl Strategy<Value = (Option<String>, String, Option<String>, Option<String>)> {
        let word = "[a-z0-9]{1,5}((\\.|_|__|-{1,3})[a-z0-9]{1,5}){0,2}";
        let repository = proptest::collection::vec(word, 1..4).prop_map(|words| words.join("/"));
        let digest = prop_oneof!["sha256:[0-9a-f]{64}", "sha384:[0-9a-f]{96}", "sha512:[0-9a-f]{128}"];
        let tag = "[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,20}";
        (registry(), any::<bool>(), repository, proptest::option::of(tag), proptest::option::of(digest)).prop_map(
            |(registry, has_registry, repository, tag, digest)| {
                // Without a registry, the first word may not look like one.
                let first = repository.split('/').next().unwrap_or_default();
                let needs = repository.contains('/') && means_registry(first);
                ((has_registry || needs).then_some(registry), repository, tag, digest)
            },
        )
    }

    fn joined(registry: Option<&str>, repository: &str, tag: Option<&str>, digest: Option<&str>) -> String {
        let before = registry.map(|registry| format!("{registry}/")).unwrap_or_default();
        let tag = tag.map(|tag| format!(":{tag}")).unwrap_or_default();
        let digest = digest.map(|digest| format!("@{digest}")).unwrap_or_default();
        format!("{before}{repository}{tag}{digest}")
    }

    proptest! {
        /// Good names are taken apart into what they were made of, and come out as they went in.
        #[test]
        fn good_names_are_read((registry, repository, tag, digest) in parts()) {
            let name = joined(registry.as_deref(), &repository, tag.as_deref(), digest.as_deref());
            let image: Image = name.parse().map_err(|error| TestCaseError::fail(format!("{name}: {error}")))?;
            prop_assert_eq!(image.to_string(), name);
            prop_assert_eq!(image, Image { registry, repository, tag, digest });
        }

        /// One thing that is wrong with a name that is good otherwise is enough.
        #[test]
        fn one_mistake_is_enough((registry, repository, tag, digest) in parts(), mistake in 0..12usize) {
            let hex = |count: usize| "a".repeat(count);
            let (mut registry, mut repository, mut tag, mut digest) = (registry, repository, tag, digest);
            match mistake {
                0 => digest = Some(format!("md5:{}", hex(32))),
                1 => digest = Some(format!("sha1:{}", hex(40))),
                2 => digest = Some(format!("{}0", digest.unwrap_or_else(|| format!("sha256:{}", hex(64))))),
                3 => digest = Some(format!("sha256:{}A", hex(63))),
                4 => registry = Some("-x.io".to_owned()),
                5 => registry = Some("x..io".to_owned()),
                6 => registry = Some("[::1]5000".to_owned()),
                7 => repository.push_str("/a..b"),
                8 => repository.push_str("/-a"),
                9 => repository.push_str("/A"),
                10 => tag = Some(".1".to_owned()),
                _ => tag = Some(String::new()),
            }
            let name = joined(registry.as_deref(), &repository, tag.as_deref(), digest.as_deref());
            prop_assert!(name.parse::<Image>().is_err(), "{} was taken", name);
        }
    }
}
