"""The reference pages of the documentation, generated from the code.

    python -m octavo.reference docs/reference

writes them; a test fails when one is stale, or when something has no entry. What a page says is
the same on every machine: the stock components alone are shown, and nothing is measured.
"""
