"""loggers"""
