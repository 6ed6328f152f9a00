//! Which module imports which: there is no circle between the modules of a crate, and no family imports another.
//!
//! Sources are read as rustfmt leaves them. A module is a file with the folder of its name: within it files may import each
//! other as they like. What stands below `#[cfg(test)]` does not count, and neither does the root of a crate.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use dapple_api::kinds::OWN;

/// A file of a crate that is compiled outside tests.
struct Source {
    /// Its path below `src`.
    file: String,
    text: String,
}

impl Source {
    fn new(file: impl Into<String>, text: &str) -> Self {
        Self { file: file.into(), text: without_tests(text) }
    }

    /// The names of the modules that lead to it.
    fn path(&self) -> Vec<&str> {
        let path = self.file.trim_end_matches(".rs");
        path.trim_end_matches("/mod").split('/').filter(|name| *name != "lib").collect()
    }

    /// What it imports, by name from the root of a crate: `group` of its own crate, `dapple_plan::group` of another.
    fn imports(&self) -> BTreeSet<String> {
        let to_root = vec!["super"; self.path().len()].join("::");
        let is_of_path = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
        let mut found = BTreeSet::new();
        for (end, _) in self.text.match_indices("::") {
            let root = &self.text[self.text[..end].trim_end_matches(is_of_path).len()..end];
            let names = first_names(&self.text[end + 2..]).into_iter();
            if root == "crate" || root == to_root {
                found.extend(names);
            } else if root.starts_with("dapple_") && !root.contains(':') {
                found.extend(names.map(|name| format!("{root}::{name}")));
            }
        }
        found
    }
}

/// A source without comments, and without what is compiled in tests only: from the attribute to the end of the item, which is
/// indented as far as the attribute is.
fn without_tests(text: &str) -> String {
    let mut kept = String::new();
    let mut of_test = None;
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or_default().trim_end();
        let indent = code.len() - code.trim_start().len();
        match of_test {
            Some(begun) if indent != begun || !code.ends_with(['}', ';', ',']) => {}
            Some(_) => of_test = None,
            None if code.trim_start().starts_with("#[cfg(test)]") => of_test = Some(indent),
            None => kept.extend([code, "\n"]),
        }
    }
    kept
}

/// The first name of a path, or of each path in a group: `a` of `a::b`, `a` and `c` of `{a::b, c}`.
fn first_names(path: &str) -> Vec<String> {
    let name = |path: &str| -> String {
        path.trim_start().chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
    };
    let Some(group) = path.strip_prefix('{') else { return vec![name(path)] };
    let (mut depth, mut names) = (0, vec![name(group)]);
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(name(&group[at + 1..])),
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// The files of a crate, from its root along the declarations of modules.
fn sources(src: &Path) -> Vec<Source> {
    let read = |file: String| Source::new(file.clone(), &std::fs::read_to_string(src.join(file)).unwrap());
    let mut found = vec![read("lib.rs".to_owned())];
    for next in 0.. {
        let Some(source) = found.get(next) else { break };
        let declared = source.text.lines().filter_map(|line| line.split_once("mod ")?.1.strip_suffix(';'));
        let paths = declared.map(|name| [source.path(), vec![name]].concat().join("/"));
        let files = paths.map(|path| {
            let file = format!("{path}.rs");
            if src.join(&file).exists() { file } else { format!("{path}/mod.rs") }
        });
        let files: Vec<String> = files.collect();
        found.extend(files.into_iter().map(read));
    }
    found
}

/// Of each module, what it imports and the first file that does.
type Imports = BTreeMap<String, BTreeMap<String, String>>;

fn imports(sources: &[Source]) -> Imports {
    let mut all = Imports::new();
    for source in sources {
        let Some(module) = source.path().first().map(|name| (*name).to_owned()) else { continue };
        let of_module = all.entry(module).or_default();
        for name in source.imports() {
            of_module.entry(name).or_insert_with(|| source.file.clone());
        }
    }
    all
}

/// The shortest circle through each module that is in one, written out.
fn circles(imports: &Imports) -> BTreeSet<String> {
    imports.keys().filter_map(|module| circle(imports, module)).collect()
}

fn circle(imports: &Imports, start: &str) -> Option<String> {
    // By whom a module was first found to be imported, on the way from the start.
    let mut found: BTreeMap<&str, &str> = BTreeMap::new();
    let mut next = VecDeque::from([start]);
    while let Some(module) = next.pop_front().filter(|_| !found.contains_key(start)) {
        for name in imports[module].keys().filter(|name| **name != module && imports.contains_key(*name)) {
            if !found.contains_key(name.as_str()) {
                found.insert(name, module);
                next.push_back(name);
            }
        }
    }
    let mut way = vec![start, *found.get(start)?];
    while way.last() != Some(&start) {
        way.push(found[way[way.len() - 1]]);
    }
    // Whichever of its modules is looked at, a circle is written from the same one on.
    way.pop();
    way.reverse();
    let first = way.iter().enumerate().min_by_key(|(_, module)| **module)?.0;
    way.rotate_left(first);
    way.push(way[0]);
    let steps = way.windows(2).map(|step| format!("{} imports {}", imports[step[0]][step[1]], step[1]));
    Some(format!("{} ({})", way.join(" -> "), steps.collect::<Vec<_>>().join(", ")))
}

fn is_family(module: &str) -> bool {
    OWN.iter().any(|kind| kind.family == module)
}

/// Each family that imports another, in its own crate or elsewhere.
fn mixed_families(imports: &Imports) -> Vec<String> {
    let mut mixed = Vec::new();
    for (module, names) in imports.iter().filter(|(module, _)| is_family(module)) {
        for (name, file) in names {
            let other = name.rsplit("::").next().unwrap_or_default();
            if is_family(other) && other != module {
                mixed.push(format!("{file} imports {name}, another family"));
            }
        }
    }
    mixed
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn modules_do_not_import_each_other_in_circles() {
    let mut found = Vec::new();
    for name in ["admit", "control"] {
        let imports = imports(&sources(&crates().join(name).join("src")));
        assert!(imports.len() > 10 && imports.values().any(|names| names.len() > 10), "{name}: {imports:?}");
        found.extend(circles(&imports).into_iter().map(|circle| format!("crates/{name}/src: {circle}")));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn no_family_imports_another() {
    let (mut families, mut found) = (0, Vec::new());
    for folder in std::fs::read_dir(crates()).unwrap() {
        let folder = folder.unwrap();
        let (name, src) = (folder.file_name(), folder.path().join("src"));
        if src.join("lib.rs").exists() {
            let imports = imports(&sources(&src));
            families += imports.keys().filter(|module| is_family(module)).count();
            let mixed = mixed_families(&imports).into_iter();
            found.extend(mixed.map(|mixed| format!("crates/{}/src: {mixed}", name.display())));
        }
    }
    assert!(families > OWN.len(), "only {families} modules of families were found");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_circle_is_written_out() {
    let found = imports(&[
        Source::new("lib.rs", "mod cache;\nuse crate::lease::Lease;"),
        Source::new("cache.rs", "mod store;\nuse store::Store;\nuse crate::env::Env;"),
        Source::new("cache/store.rs", "use super::Cache;\nuse crate::{\n    env::{Clock, Env},\n    writes,\n};"),
        Source::new("env.rs", "#[cfg(test)]\nmod tests {\n    use crate::cache::Cache;\n}\n"),
        Source::new("lease.rs", "fn lost() -> super::cache::store::Store {}"),
        Source::new(
            "writes/mod.rs",
            "// It was crate::cache before.\n#[cfg(test)]\nmod tests;\nuse crate::lease::Lease;",
        ),
    ]);
    let told = "cache -> writes -> lease -> cache (cache/store.rs imports writes, writes/mod.rs imports lease, \
                lease.rs imports cache)";
    assert_eq!(circles(&found), BTreeSet::from([told.to_owned()]));
}

#[test]
fn a_family_that_imports_another_is_told() {
    let found = imports(&[
        Source::new("daemonset.rs", "use crate::slim::Pod;\nuse dapple_plan::daemonset::Fleet;"),
        Source::new("daemonset/look.rs", "fn of(group: &super::super::group::Group) {}"),
        Source::new("group.rs", "use dapple_plan::{group, pool::plan};\nuse dapple_control_tests::marker;"),
        Source::new("families.rs", "use crate::{daemonset, group};"),
    ]);
    let told = [
        "daemonset/look.rs imports group, another family",
        "group.rs imports dapple_control_tests::marker, another family",
        "group.rs imports dapple_plan::pool, another family",
    ];
    assert_eq!(mixed_families(&found), told);
}
