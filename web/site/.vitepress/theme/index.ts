// Without fonts: pages ask for nothing but their own text.
export { default } from "vitepress/theme-without-fonts";
