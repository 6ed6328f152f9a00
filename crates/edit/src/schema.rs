//! What Kubernetes says about the fields of a pod template: their shapes, and how lists merge.
//!
//! The table in `generated.rs` is made from Kubernetes' own OpenAPI document, which `dapple-api` keeps. To move to the
//! next Kubernetes, replace that document and run
//! `cargo run -p dapple-edit --example generate-schema > crates/edit/src/schema/generated.rs`.

#[rustfmt::skip]
mod generated;

pub use generated::{DEPLOYMENT, POD_TEMPLATE, STATEFUL_SET};

/// The shape of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Text.
    String,
    /// A whole number.
    Integer,
    /// True or false.
    Boolean,
    /// A whole number or text, such as a port.
    IntOrString,
    /// An amount, such as `500Mi`: text or a number.
    Quantity,
    /// An object with known fields.
    Object(TypeId),
    /// An object with any keys, whose values have one shape.
    Map(&'static Shape),
    /// A list, whose items have one shape.
    List(&'static Shape),
    /// Anything.
    Any,
}

/// The place of a [`Type`] in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypeId(pub(crate) u16);

/// An object with known fields.
#[derive(Debug)]
pub struct Type {
    /// Its name in Kubernetes, such as `Container`.
    pub name: &'static str,
    /// Its fields, sorted by name.
    pub fields: &'static [Field],
}

/// A field.
#[derive(Debug)]
pub struct Field {
    /// Its name in JSON.
    pub name: &'static str,
    /// The shape of its value.
    pub shape: Shape,
    /// How a strategic merge patch treats it.
    pub merge: Merge,
}

/// How a strategic merge patch treats a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Merge {
    /// Whether lists merge; otherwise the patch's list replaces the other.
    pub lists: bool,
    /// The field by which items of a list that merges are told apart; `None` for plain values.
    pub key: Option<&'static str>,
}

impl Merge {
    /// Maps merge, lists are replaced.
    pub(crate) const DEFAULT: Self = Self { lists: false, key: None };
}

impl TypeId {
    /// The type.
    pub fn get(self) -> &'static Type {
        &generated::TYPES[usize::from(self.0)]
    }
}

impl Type {
    /// The field of exactly this name: as the API server reads what it is given.
    pub fn exact_field(&self, name: &str) -> Option<&'static Field> {
        self.fields.binary_search_by(|field| field.name.cmp(name)).ok().map(|found| &self.fields[found])
    }

    /// The field of this name. As Kubernetes merges JSON: the exact name first, else one that differs by case only.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        match self.fields.binary_search_by(|field| field.name.cmp(name)) {
            Ok(found) => Some(&self.fields[found]),
            Err(_) => self.fields.iter().find(|field| field.name.eq_ignore_ascii_case(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(of: Shape, name: &str) -> &'static Field {
        let Shape::Object(id) = of else { panic!("{of:?} is not an object") };
        id.get().field(name).unwrap_or_else(|| panic!("{} has no {name}", id.get().name))
    }

    fn item(list: &Field) -> Shape {
        let Shape::List(item) = list.shape else { panic!("{} is not a list", list.name) };
        *item
    }

    #[test]
    fn containers_merge_by_name_and_ports_by_number() {
        let containers = field(field(POD_TEMPLATE, "spec").shape, "containers");
        assert_eq!(containers.merge, Merge { lists: true, key: Some("name") });
        let ports = field(item(containers), "ports");
        assert_eq!(ports.merge, Merge { lists: true, key: Some("containerPort") });
        assert_eq!(field(item(containers), "args").merge, Merge::DEFAULT);
        let finalizers = field(field(POD_TEMPLATE, "metadata").shape, "finalizers");
        assert_eq!(finalizers.merge, Merge { lists: true, key: None });
    }

    #[test]
    fn every_field_can_be_found() {
        for of in generated::TYPES.iter() {
            assert!(of.fields.is_sorted_by(|a, b| a.name < b.name), "{}", of.name);
            assert!(of.fields.iter().all(|field| std::ptr::eq(field, of.field(field.name).expect("it is there"))));
        }
    }

    #[test]
    fn names_may_differ_by_case() {
        assert_eq!(field(POD_TEMPLATE, "SPEC").name, "spec");
    }
}
