"""wrappers"""
